"""Deletes a published table so that an interrupted deletion can be finished, by any replica.

1. a commit takes all rows away, under the last writer term   no publisher of the Dataflow commits any more
2. a tombstone names the deletion                             nobody creates a table here
   Iceberg tables that name the files are dropped             from their catalogue
3. log entries, data files, other files                       in any order, until no more are found
4. the tombstone, and empty folders                           the location is free

What lies there and is not the view's table stays: another program has put it in its place. So does the view's table
where another Dataflow has published it last: a later one of the same name, or an earlier one whose tables stay. Where
tables of others lie in folders below it, nothing is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tidemark_persist import PersistError, Storage, StorageError
from tidemark_persist.log.deletion import SECONDS_MAX, check_deadline, remove_marked
from tidemark_persist.storage.storage import LOG_DIR, TOMBSTONE
from tidemark_replica.sinks.published.hash_prefix import is_data_file
from tidemark_replica.sinks.published.iceberg_follower import drop_noted
from tidemark_replica.sinks.published.published_table import (
    LAST_TERM,
    NotCommitted,
    PublishedByAnother,
    PublishedByLater,
    TableOptions,
    is_link,
    is_table,
    open_table,
)
from tidemark_replica.storage.source_secrets import SourceSecrets

COMMITS_MAX = 10
"""Attempts at the last commit, while other publishers commit."""


class TableBeingDeleted(PersistError):
    """A deletion of a table at the location is not finished."""


def remove_published(
    location: str,
    owner: str,
    uid: str = "",
    until: float | None = None,
    *,
    shared: bool = False,
    secrets: SourceSecrets | None = None,
) -> None:
    """Deletes the published table of a view, from wherever an earlier attempt stopped; does nothing where there is
    none. `owner`: the view, as `namespace.dataflow.view`. `uid`: of the Dataflow whose publishers are stopped, and
    whose table it is; "" where it may be any one's. `until`: in monotonic seconds, SECONDS_MAX after it was asked for.
    `shared`: another view may be published at the location by now, so files without a table stay. `secrets`: with which
    the Iceberg catalogue is asked.

    Raises IcebergFailed; StorageError, also after `until`, as a slow deletion must not remove files of the next table,
    and where another table lies below this one.
    """
    storage, until = Storage.at(location), time.monotonic() + SECONDS_MAX if until is None else until
    found = storage.read_json(TOMBSTONE)
    if found is None:
        options = TableOptions(location, owner, uid=uid, term=LAST_TERM)
        try:
            if open_table(options) is not None:
                _require_no_table_below(storage)
            if not _stop_publishers(storage, options, until):
                if not shared:
                    _remove_uncommitted(storage, until)
                return
        except PublishedByAnother:
            return
        check_deadline(storage, until)
        storage.write_json(TOMBSTONE, {"published": owner})
    elif found.get("published") != owner:
        return
    _require_no_table_below(storage)
    drop_noted(storage, owner, secrets or SourceSecrets(None))
    remove_marked(storage, {"published": owner}, lambda: list(_files(storage)), LOG_DIR, until)


def is_published(location: str, owner: str) -> bool:
    """Whether the view's table is at the location. Raises StorageError."""
    try:
        return open_table(TableOptions(location, owner)) is not None
    except PublishedByAnother:
        return False


def refuse_deleted(storage: Storage) -> None:
    """Raises TableBeingDeleted where a deletion is not finished."""
    if storage.read_json(TOMBSTONE) is not None:
        raise TableBeingDeleted(f"the table at {storage.location} is being deleted")


def _stop_publishers(storage: Storage, options: TableOptions, until: float) -> bool:
    """Whether there is such a table. No publisher of the Dataflow commits to it afterwards. Raises PublishedByAnother,
    StorageError."""
    for _ in range(COMMITS_MAX):
        try:
            table = open_table(options)
            if table is None:
                return False
            table.check_dataflow()
            table.check_term()
            check_deadline(storage, until)
            table.take_all_away()
            return True
        except PublishedByLater:
            return True
        except NotCommitted:
            continue
    raise StorageError(f"{options.location} is not gone: others commit to it; delete it again to go on")


def _remove_uncommitted(storage: Storage, until: float) -> None:
    """Deletes the data files of a first publication that died before its commit."""
    for file in storage.list(""):
        if is_data_file(file.path):
            check_deadline(storage, until)
            storage.remove(file.path)
    storage.remove_empty_folders()


def _files(storage: Storage) -> Iterator[str]:
    """The files of the location but the tombstone, the log first: then no reader finds a table that lacks files. The
    log's oldest entries come first: without its newest ones, the table would no longer keep publishers away."""
    yield from sorted(_files_in(storage, LOG_DIR))
    yield from (path for path in _files_in(storage, "") if not path.startswith(f"{LOG_DIR}/") and path != TOMBSTONE)


def _require_no_table_below(storage: Storage) -> None:
    """Raises StorageError where a folder below has a Delta table, or a shard."""
    if (other := next(_tables_below(storage, ""), None)) is not None:
        raise StorageError(
            f"{storage.location} is not deleted, as another table lies below it, in {other}: move that, and delete "
            "this one again"
        )


def _tables_below(storage: Storage, folder: str) -> Iterator[str]:
    for name in storage.folders(folder):
        path = f"{folder}/{name}" if folder else name
        if path == LOG_DIR or is_link(storage, path):
            continue
        if is_table(storage, path):
            yield path
        else:
            yield from _tables_below(storage, path)


def _files_in(storage: Storage, folder: str) -> Iterator[str]:
    """The files of the folder and of folders below it, but none to which a link leads."""
    yield from (file.path for file in storage.list(folder))
    for name in storage.folders(folder):
        path = f"{folder}/{name}" if folder else name
        if not is_link(storage, path):
            yield from _files_in(storage, path)
