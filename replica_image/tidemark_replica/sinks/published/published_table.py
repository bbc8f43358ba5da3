"""The Delta table of a publication: its files, its time, and commits that replace some files by others.

    txn   tidemark.published/<shard>   the time of the contents, by the shard that they are from
    txn   tidemark.version/<shard>     the version that this commit made: a later version is of another program
    txn   tidemark.emptied/<shard>     the time, where the view had errors then, and the table is empty for that reason
    txn   tidemark.term/<uid>          the writer term, by the Dataflow: a publisher of an older revision is refused
    txn   tidemark.dataflow            a number of the Dataflow that has published last: only it deletes the table, and
                                       one that published before it, as in another cluster, is refused
    commitInfo tidemark.time           the same time, for people

A commit takes exactly the version after the one that was read, or none, so of two publishers one wins, and the other
reads the table again. The outcome of a commit whose reply was lost is what the table says when it is opened again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake._internal import RemoveAction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from tidemark_persist import PersistError, ShardId, Storage
from tidemark_persist.storage.storage import LOG_DIR, OWN_DIR
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.sinks.publish import is_chosen
from tidemark_replica.sinks.published.hash_prefix import is_data_file, prefix_of
from tidemark_replica.sinks.published.iceberg_notes import FOLDER
from tidemark_replica.sinks.published.partitions import Partition, partition_text

LOG = logging.getLogger(__name__)
TIME_PROPERTY = "tidemark.time"
COMMIT_PROPERTY = "tidemark.commit"
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
RESERVED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns of a change data feed."""


class PublishedByAnother(PersistError):
    """The location holds a table that is not of this view, or that another Dataflow of its name has taken over."""


class ColumnsNotSupported(PersistError):
    """The view has a column that the table cannot have."""


class NotCommitted(PersistError):
    """Nothing of the commit was written."""


class TableMoved(NotCommitted):
    """Another program committed to the table first."""


class PublishedByLater(PersistError):
    """A later revision of the Dataflow publishes the table, or it is being deleted."""


DATAFLOW = "tidemark.dataflow"
LAST_TERM = (1 << 63) - 1
"""The writer term of a table that is being deleted."""


@dataclass(frozen=True)
class TableOptions:
    """`owner`: the view, as `namespace.dataflow.view`. `retention_hours`: how long replaced files stay for readers.
    `uid`, `term`: the Dataflow, and the writer term of the revision that publishes. `change_data_feed`: readers may ask
    which rows came and went. `partition_by`: the partition columns."""

    location: str
    owner: str
    retention_hours: int = 24
    uid: str = ""
    term: int = 0
    change_data_feed: bool = False
    partition_by: tuple[str, ...] = ()

    def check_columns(self, schema: pa.Schema) -> None:
        """Raises ColumnsNotSupported where a view of these columns cannot be published so."""
        reserved = sorted(RESERVED_COLUMNS.intersection(schema.names)) if self.change_data_feed else []
        if reserved:
            raise ColumnsNotSupported(
                f"a table with a change data feed cannot have column {reserved[0]}: rename it, or set changeDataFeed: "
                "false"
            )


@dataclass(frozen=True)
class PublishedFile:
    """A live data file: `path` in the location, `size` in bytes, `rows` -1 where the log does not say."""

    path: str
    size: int
    rows: int
    partition: Partition = ()

    @property
    def prefix(self) -> str:
        """The bits that the hashes of all its rows begin with."""
        return prefix_of(self.path)


@dataclass(frozen=True)
class TableReplacement:
    """One commit: `removed` files go, `added` files come, and the contents are those at `time`. `is_in_error`: the view
    has errors then, and the table has no rows instead of its contents. `changes_data`: False where the rows are those
    of before, in other files."""

    time: Time
    added: tuple[PublishedFile, ...] = ()
    removed: tuple[PublishedFile, ...] = ()
    is_in_error: bool = False
    changes_data: bool = True


class PublishedTable:
    """The table at one version. A commit needs a new one."""

    def __init__(self, options: TableOptions, storage: Storage, table: DeltaTable) -> None:
        self._options, self._storage, self._table = options, storage, table
        with storage.errors("reading the table"):
            self.version = int(table.version())
            self.schema = pa.schema(table.schema().to_arrow())
            self.files = _live_files(table)
            metadata = table.metadata()
        self.partition_by = tuple(metadata.partition_columns)
        """The partition columns that it has, in the order of each file's values."""
        self.id = str(metadata.id)
        has_feed = metadata.configuration.get(CHANGE_DATA_FEED) == "true"
        wanted = options.change_data_feed, list(options.partition_by)
        self.is_configured = (has_feed, metadata.partition_columns) == wanted
        """Whether it has the properties and the partition columns that the options ask for."""

    @property
    def rows(self) -> int:
        return sum(max(file.rows, 0) for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def check_term(self) -> None:
        """Raises PublishedByLater where a later revision has published, PublishedByAnother where another Dataflow of
        the name has published after this revision. Only the next one takes the table back: somebody edits the Dataflow
        for it, so two Dataflows do not replace each other's rows for ever."""
        with self._storage.errors("reading the table"):
            term = self._table.transaction_version(_term_id(self._options))
            last = self._table.transaction_version(DATAFLOW)
        if term == LAST_TERM:
            raise PublishedByLater(f"{self._options.location} is being deleted with its Dataflow")
        if term is not None and int(term) > self._options.term:
            raise PublishedByLater(
                f"a revision of term {term} publishes {self._options.location}; this one has term {self._options.term}"
            )
        is_others = last not in (None, dataflow_number(self._options.uid))
        if term is not None and int(term) == self._options.term and is_others:
            raise PublishedByAnother(
                f"another Dataflow of this name, such as one of another cluster, has taken {self._options.location}"
                " over: give one of both views another location. Where the other view no longer publishes there, edit "
                "this Dataflow: its next revision takes the table back"
            )

    def check_dataflow(self) -> None:
        """Raises PublishedByAnother where another Dataflow has published last. A table without that number may be of
        any one."""
        with self._storage.errors("reading the table"):
            found = self._table.transaction_version(DATAFLOW)
        if self._options.uid and found is not None and found != dataflow_number(self._options.uid):
            raise PublishedByAnother(f"another Dataflow has published {self._options.location} last")

    def time_of(self, shard: ShardId) -> Time | None:
        """The time of the shard whose contents the table has. None: it has not, or another program may have changed
        them. Raises StorageError."""
        with self._storage.errors("reading the table"):
            published = self._table.transaction_version(_time_id(shard))
            own = self._table.transaction_version(_version_id(shard))
        if published is None or own is None or not self._is_unchanged_since(int(own)):
            return None
        if any(_is_outside(file.path) for file in self.files):
            return None
        return Time(published)

    def is_in_error(self, shard: ShardId) -> bool:
        """Whether the table is empty because the view had errors at its time. Raises StorageError."""
        with self._storage.errors("reading the table"):
            emptied = self._table.transaction_version(_emptied_id(shard))
            return emptied is not None and emptied == self._table.transaction_version(_time_id(shard))

    def commit(self, shard: ShardId, change: TableReplacement, schema: pa.Schema | None = None) -> None:
        """Replaces files. `schema`: replaces all files, the columns and the properties. Raises NotCommitted where
        nothing was written, StorageError where the commit may have landed."""
        commit_id = uuid.uuid4().hex
        properties = _properties(self._options, shard, change, self.version + 1, commit_id)
        with self._storage.errors("committing", writing=True):
            try:
                if schema is None or (schema == self.schema and self.is_configured):
                    self._replace(change, properties, everything=schema is not None)
                else:  # other types may need another protocol, which a write transaction does not set
                    _create(self._options, self._storage, schema, change, properties, "overwrite")
            except Exception as error:
                entry = self._storage.read(f"{LOG_DIR}/{self.version + 1:020}.json")
                if entry is None and isinstance(error, CommitFailedError):
                    raise NotCommitted(f"{self._options.location}: {self._storage.redacted(error)}") from None
                if entry is None:
                    raise
                if commit_id.encode() not in entry:
                    raise TableMoved(f"{self._options.location}: another program committed first") from None

    def _replace(self, change: TableReplacement, properties: CommitProperties, everything: bool) -> None:
        now, partition_by = _now_ms(), self._options.partition_by
        removes = [
            RemoveAction(f.path, change.changes_data, now, f.size, dict(zip(partition_by, f.partition, strict=True)))
            for f in change.removed
        ]
        self._table.create_write_transaction(
            [*_adds(change, partition_by), *removes],
            "overwrite" if everything else "append",
            Schema.from_arrow(self.schema),
            partition_by=list(partition_by),
            commit_properties=properties,
        )

    def take_all_away(self) -> None:
        """Commits that there are no rows, with the last writer term: no other publisher of the Dataflow commits after
        it. Raises NotCommitted, StorageError."""
        properties = CommitProperties(
            max_commit_retries=0, app_transactions=[Transaction(_term_id(self._options), LAST_TERM)]
        )
        with self._storage.errors("committing", writing=True):
            try:
                self._table.create_write_transaction(
                    [],
                    "overwrite",
                    Schema.from_arrow(self.schema),
                    partition_by=self._table.metadata().partition_columns,
                    commit_properties=properties,
                )
            except CommitFailedError as error:
                raise NotCommitted(f"{self._options.location}: {self._storage.redacted(error)}") from None

    def remove_unused(self) -> int:
        """Deletes files that no version within the retention refers to. Returns how many there were; none where some
        are of another table, in a folder below this one."""
        unused = self._vacuum(dry_run=True)
        folders = {str(above) for file in unused for above in PurePosixPath(unquote(file)).parents if above.name}
        if (others := sorted(each for each in folders if is_table(self._storage, each))) != []:
            LOG.warning(
                "%s is not cleaned up, as another table lies below it, in %s: move one of both",
                *(self._storage.location, others[0]),
            )
            return 0
        return len(self._vacuum(dry_run=False)) if unused else 0

    def _vacuum(self, dry_run: bool) -> list[str]:
        hours = self._options.retention_hours
        with self._storage.errors("removing old files", writing=True):
            found = self._table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
        return list(found)

    def _is_unchanged_since(self, version: int) -> bool:
        """Whether no later commit changed rows or columns: compaction and vacuum by other programs do not."""
        for later in range(version + 1, self.version + 1):
            entry = self._storage.read(f"{LOG_DIR}/{later:020}.json")
            if entry is None or any(map(_changes_data, entry.splitlines())):
                return False
        return True


def is_table(storage: Storage, folder: str) -> bool:
    """Whether the folder below the location has a Delta table of its own, or a shard. Raises StorageError."""
    return bool(storage.list(f"{folder}/{LOG_DIR}"))


def is_link(storage: Storage, path: str) -> bool:
    """Whether the path below the location is a symbolic link; never in an object store."""
    return storage.local_path is not None and (storage.local_path / path).is_symlink()


def open_table(options: TableOptions) -> PublishedTable | None:
    """The table at the location; None where there is none. Raises PublishedByAnother, StorageError."""
    storage = Storage.at(options.location)
    try:
        storage.probe()
        with storage.errors("opening the table"):
            table = DeltaTable(storage.location, storage_options=storage.settings)
            name = table.metadata().name
    except TableNotFoundError:
        return None
    if name != options.owner:
        raise PublishedByAnother(
            f"{options.location} holds table {name!r}, not {options.owner!r}: give the view another location, or delete"
            " that table"
        )
    return PublishedTable(options, storage, table)


def refuse_foreign(storage: Storage) -> None:
    """Check, where there is no table, that the location has no files but those of publishers that died: a later
    clean-up would delete them. No link leads to a location that a manifest chose: whoever can write near it would say
    where the table lies. Raises PublishedByAnother, StorageError."""
    local = storage.local_path
    if local is not None and is_chosen(storage.location) and local.resolve() != local:
        raise PublishedByAnother(
            f"a symbolic link lies on the way to {storage.location}: give the view a location without links, whose "
            "prefix publish.locations of the ComputeInstance names without links, too"
        )
    if (found := next(_foreign(storage, ""), None)) is not None:
        raise PublishedByAnother(
            f"{storage.location} has no table, and holds {found}, which is not Tidemark's: give the view another "
            "location, or empty the folder"
        )


def _foreign(storage: Storage, folder: str) -> Iterator[str]:
    yield from (file.path for file in storage.list(folder) if not _is_own(file.path))
    for name in storage.folders(folder):
        path = f"{folder}/{name}" if folder else name
        if is_link(storage, path):
            yield path
        elif path != OWN_DIR:
            yield from _foreign(storage, path)


def _is_own(path: str) -> bool:
    """Whether a publisher that died before its first commit may have left the file, or an Iceberg commit that ended
    after the table was deleted."""
    return is_data_file(path) or path.startswith((f"{LOG_DIR}/_commit_", f"{FOLDER}/"))


def create_table(options: TableOptions, schema: pa.Schema, shard: ShardId, change: TableReplacement) -> None:
    """Creates the table with its first contents, in one commit. Raises StorageError, also where a table is there."""
    storage = Storage.at(options.location)
    with storage.errors("creating the table", writing=True):
        properties = _properties(options, shard, change, 0, uuid.uuid4().hex)
        _create(options, storage, schema, change, properties, "error")


def _create(
    options: TableOptions,
    storage: Storage,
    schema: pa.Schema,
    change: TableReplacement,
    properties: CommitProperties,
    mode: Literal["error", "overwrite"],
) -> None:
    """Creates the table, or with "overwrite" replaces all of it, in one commit."""
    retention = f"interval {options.retention_hours} hours"
    configuration = {"delta.deletedFileRetentionDuration": retention, "delta.logRetentionDuration": retention}
    if options.change_data_feed:
        configuration |= {CHANGE_DATA_FEED: "true"}
    create_table_with_add_actions(
        storage.location,
        Schema.from_arrow(schema),
        _adds(change, options.partition_by),
        mode=mode,
        partition_by=list(options.partition_by),
        name=options.owner,
        description="the current rows of a Tidemark view; Tidemark replaces what other programs write here",
        configuration=configuration,
        storage_options=storage.settings,
        commit_properties=properties,
    )


def _adds(change: TableReplacement, partition_by: Sequence[str]) -> list[AddAction]:
    now, changes = _now_ms(), change.changes_data
    return [
        AddAction(
            f.path,
            f.size,
            dict(zip(partition_by, f.partition, strict=True)),
            now,
            changes,
            json.dumps({"numRecords": f.rows}),
        )
        for f in change.added
    ]


def _properties(
    options: TableOptions, shard: ShardId, change: TableReplacement, version: int, commit_id: str
) -> CommitProperties:
    """No retries: delta-rs would rebase a commit onto files that it did not read."""
    emptied = [Transaction(_emptied_id(shard), change.time)] if change.is_in_error else []
    return CommitProperties(
        max_commit_retries=0,
        custom_metadata={TIME_PROPERTY: str(change.time), COMMIT_PROPERTY: commit_id},
        app_transactions=[
            Transaction(_time_id(shard), change.time),
            Transaction(_version_id(shard), version),
            Transaction(_term_id(options), options.term),
            Transaction(DATAFLOW, dataflow_number(options.uid)),
            *emptied,
        ],
    )


def _time_id(shard: ShardId) -> str:
    return f"tidemark.published/{shard}"


def _version_id(shard: ShardId) -> str:
    return f"tidemark.version/{shard}"


def _emptied_id(shard: ShardId) -> str:
    return f"tidemark.emptied/{shard}"


def _term_id(options: TableOptions) -> str:
    return f"tidemark.term/{options.uid}"


def dataflow_number(uid: str) -> int:
    """63 bits of a hash of the uid, since a transaction of Delta has a number alone."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") >> 1


def _is_outside(path: str) -> bool:
    """Whether the path of a live file leads out of the table, as another program may have written it."""
    decoded = unquote(path)
    return decoded.startswith("/") or ":" in decoded or ".." in decoded.split("/")


def _changes_data(line: bytes) -> bool:
    action = json.loads(line) if line.strip() else {}
    files = [action[kind] for kind in ("add", "remove") if kind in action]
    return "metaData" in action or any(file.get("dataChange", True) for file in files)


def _live_files(table: DeltaTable) -> Sequence[PublishedFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    counts = (
        actions.column("num_records").to_pylist() if "num_records" in actions.column_names else [None] * len(actions)
    )
    paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    columns = [actions.column(f"partition.{name}").to_pylist() for name in table.metadata().partition_columns]
    values = zip(*columns, strict=True) if columns else [()] * len(paths)
    return [
        PublishedFile(path, size, -1 if rows is None else rows, tuple(map(partition_text, partition)))
        for path, size, rows, partition in zip(paths, sizes, counts, values, strict=True)
    ]


def _now_ms() -> int:
    return int(time.time() * 1000)
