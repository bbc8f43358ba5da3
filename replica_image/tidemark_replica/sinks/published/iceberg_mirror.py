"""Keeps an Iceberg table equal to a published Delta table: its snapshot names the same Parquet files.

    Delta version 7, at time t ──► snapshot {tidemark.version: 7, tidemark.time: t} ──one commit──► the catalogue
                                   └─ _iceberg/snap-*.avro ──► _iceberg/*-m0.avro: all live files, and those that went

A mirror step reads the Iceberg table first and the newest Delta version after it, and commits on the snapshot that it
has read, or not at all. So no step moves the table back, any process may make one at any time, and one that died is
made again. Commits of other programs to the Iceberg table are no part of the next snapshot.

Where the columns, the partition columns or the location are others, one commit replaces them all: the new columns have
new ids, and earlier snapshots, branches and tags go, since readers would find the old files' columns by the new names.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    AssignUUIDUpdate,
    RemovePartitionSpecsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.typedef import IcebergBaseModel

from tidemark_persist import ShardId, Storage
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.published.iceberg_catalogue import (
    CatalogueSettings,
    IcebergFailed,
    StorageCatalogue,
    StorageIO,
    catalogue_errors,
    url_of,
)
from tidemark_replica.sinks.published.iceberg_notes import FOLDER
from tidemark_replica.sinks.published.iceberg_partitions import (
    LAST_FIELD_ID,
    PARTITION_BY,
    found_spec,
    partition_columns_text,
    partition_record,
    partition_spec,
)
from tidemark_replica.sinks.published.iceberg_schema import iceberg_schema, is_same, name_mapping
from tidemark_replica.sinks.published.published_table import (
    PublishedByAnother,
    PublishedByLater,
    PublishedFile,
    PublishedTable,
    TableOptions,
    dataflow_number,
    open_table,
)
from tidemark_replica.storage.source_secrets import SourceSecrets

ATTEMPTS = 5
"""Commits of one step, while others commit to the Iceberg table."""
SNAPSHOTS_MAX = 100
METADATA_FILES = 20
"""Earlier metadata files that the catalogue keeps."""
OWNER, DATAFLOW, TERM = "tidemark.owner", "tidemark.dataflow", "tidemark.term/"
VERSION, TIME, DELTA_TABLE = "tidemark.version", "tidemark.time", "tidemark.table"
_NAME_MAPPING, _METADATA_PATH = "schema.name-mapping.default", "write.metadata.path"
_FORMAT: Literal[2] = 2


@dataclass(frozen=True)
class IcebergMirror:
    """`table`: namespaces and name in the catalogue, with dots between. `options`: of the Delta table."""

    settings: CatalogueSettings
    table: str
    options: TableOptions
    secrets: SourceSecrets

    def mirror(self, shard: ShardId) -> Time | None:
        """Makes the Iceberg table equal to the newest version of the Delta table, and returns its time; None where that
        has not the contents of the shard: another publication is to come first.

        Raises IcebergFailed, DestinationStopped, PublishedByAnother, PublishedByLater, StorageError: the Iceberg table
        has the rows of one version, before or after.
        """
        storage = Storage.at(self.options.location)
        catalogue = self.settings.connect(self.secrets, storage)
        for _ in range(ATTEMPTS):
            with catalogue_errors(self.secrets):
                found = catalogue.find_table(self._identifier)
            if found is not None:
                self._check_ours(found.metadata)
            published = open_table(self.options)
            if published is None:
                return None
            published.check_term()
            if (at := published.time_of(shard)) is None:
                return None
            with catalogue_errors(self.secrets):
                if self._commit(catalogue, storage, found, published, at):
                    if found is None:
                        self._check_not_deleted(catalogue)
                    return at
        raise IcebergFailed(f"other programs commit to Iceberg table {self.table} all the time: it is tried again")

    @property
    def _identifier(self) -> tuple[str, ...]:
        return tuple(self.table.split("."))

    def _check_ours(self, metadata: TableMetadata) -> None:
        """Raises IcebergFailed, PublishedByAnother, PublishedByLater."""
        properties, options = metadata.properties, self.options
        if (owner := properties.get(OWNER)) != options.owner:
            whose = f"of view {owner}" if owner else "not Tidemark's"
            raise IcebergFailed(f"Iceberg table {self.table} is {whose}: name another one", "IcebergTableTaken")
        if metadata.format_version != _FORMAT:
            raise IcebergFailed(
                f"another program has made version {metadata.format_version} of the format of Iceberg table "
                f"{self.table}: drop it, and Tidemark makes it anew"
            )
        term = int(properties.get(f"{TERM}{options.uid}", -1))
        if term > options.term:
            raise PublishedByLater(f"a revision of term {term} publishes Iceberg table {self.table}")
        if term == options.term and properties.get(DATAFLOW) != str(dataflow_number(options.uid)):
            raise PublishedByAnother(
                f"another Dataflow of this name, such as one of another cluster, has taken Iceberg table {self.table} "
                "over: give one of both views another one"
            )

    def _check_not_deleted(self, catalogue: StorageCatalogue) -> None:
        """Drops the table that this step has made where the Delta table is being deleted meanwhile: whoever deletes it
        may have found no Iceberg table."""
        try:
            if (published := open_table(self.options)) is not None:
                published.check_term()
                return
        except PublishedByLater:
            pass
        if (found := catalogue.find_table(self._identifier)) is None:
            return
        term, dataflow = (found.metadata.properties.get(each) for each in (f"{TERM}{self.options.uid}", DATAFLOW))
        if (term, dataflow) == (str(self.options.term), str(dataflow_number(self.options.uid))):  # else a later one's
            catalogue.drop_table(self._identifier)

    def _commit(
        self, catalogue: StorageCatalogue, storage: Storage, found: Table | None, published: PublishedTable, at: Time
    ) -> bool:
        """Whether the table is equal now. False: another commit came first."""
        step, table = _Step(self, storage, published, at), found
        try:
            if found is None:
                if not catalogue.namespace_exists(self._identifier[:-1]):
                    catalogue.make_namespace(self._identifier[:-1])
                schema = iceberg_schema(published.schema)
                wanted = step.properties(schema)
                staged = catalogue.create_table_transaction(
                    self._identifier, schema, url_of(storage), properties={"format-version": str(_FORMAT), **wanted}
                )
                metadata = staged.table_metadata
                table = StagedTable(self._identifier, metadata, "", StorageIO(storage), catalogue)
                requirements, updates = step.creation(metadata)
            else:
                requirements, updates = step.change(found.metadata)
            if updates:
                catalogue.commit_table(table, requirements, updates)
            return True
        except (CommitFailedException, TableAlreadyExistsError, NamespaceAlreadyExistsError, NoSuchTableError):
            step.discard()
        except BadRequestError:  # a sequence number or a time before that of another commit, which is then found
            step.discard()
            with_now = catalogue.find_table(self._identifier)
            if found is None or with_now is None or with_now.metadata_location == found.metadata_location:
                raise
        except NoSuchNamespaceError as error:
            raise ValueError(str(error)) from None
        return False


M = TypeVar("M", bound=IcebergBaseModel)
_Change = tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]


class _Step:
    """The changes of one commit, and the files that it needs."""

    def __init__(self, of: IcebergMirror, storage: Storage, published: PublishedTable, at: Time) -> None:
        self._of, self._storage, self._published, self._at = of, storage, published, at
        self._io, self._root = StorageIO(storage), url_of(storage)
        self._written: list[str] = []

    def properties(self, schema: Schema) -> dict[str, str]:
        options = self._of.options
        return {
            OWNER: options.owner,
            DATAFLOW: str(dataflow_number(options.uid)),
            f"{TERM}{options.uid}": str(options.term),
            PARTITION_BY: partition_columns_text(self._published.partition_by),
            _NAME_MAPPING: name_mapping(schema),
            _METADATA_PATH: f"{self._root}/{FOLDER}",
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": str(METADATA_FILES),
        }

    def creation(self, metadata: TableMetadata) -> _Change:
        """The table with its first snapshot, in one commit: nobody reads it empty."""
        schema = metadata.schema()
        spec = partition_spec(schema, self._published.partition_by)
        snapshot = self._snapshot(metadata, schema, spec, None)
        return (_made(AssertCreate),), (
            _made(AssignUUIDUpdate, uuid=metadata.table_uuid),
            _made(UpgradeFormatVersionUpdate, format_version=_FORMAT),
            _made(AddSchemaUpdate, schema=schema),
            _made(SetCurrentSchemaUpdate, schema_id=-1),
            _made(AddPartitionSpecUpdate, spec=spec),
            _made(SetDefaultSpecUpdate, spec_id=-1),
            _made(AddSortOrderUpdate, sort_order=UNSORTED_SORT_ORDER),
            _made(SetDefaultSortOrderUpdate, sort_order_id=-1),
            _made(SetLocationUpdate, location=self._root),
            _made(SetPropertiesUpdate, updates={**metadata.properties, **self.properties(schema)}),
            *_made_current(snapshot),
        )

    def change(self, metadata: TableMetadata) -> _Change:
        """The next snapshot, with what else is to be changed. No updates: the table is equal."""
        base, now = metadata.current_snapshot(), metadata.schema()
        wanted = iceberg_schema(self._published.schema)
        is_kept = is_same(now, wanted) and metadata.location == self._root and self._has_partitions(metadata)
        spec = found_spec(metadata.partition_specs, now, self._published.partition_by)
        if is_kept and spec is not None and metadata.properties.get(_NAME_MAPPING) == name_mapping(now):
            schema, updates = now, list[TableUpdate]()
        else:  # also where another program changed the columns, or by which names they are found
            is_kept, ids = False, [each.schema_id for each in metadata.schemas]
            schema = iceberg_schema(self._published.schema, metadata.last_column_id, max(ids) + 1)
            updates = [_made(AddSchemaUpdate, schema=schema), _made(SetCurrentSchemaUpdate, schema_id=-1)]
            spec = found_spec(metadata.partition_specs, schema, self._published.partition_by)
        if spec is None:
            spec_id = max(each.spec_id for each in metadata.partition_specs) + 1
            last_id = metadata.last_partition_id or LAST_FIELD_ID
            spec = partition_spec(schema, self._published.partition_by, spec_id, last_id)
            updates += [_made(AddPartitionSpecUpdate, spec=spec), _made(SetDefaultSpecUpdate, spec_id=-1)]
        elif metadata.default_spec_id != spec.spec_id:
            updates.append(_made(SetDefaultSpecUpdate, spec_id=spec.spec_id))
        if metadata.location != self._root:
            updates.append(_made(SetLocationUpdate, location=self._root))
        properties = {n: v for n, v in self.properties(schema).items() if metadata.properties.get(n) != v}
        if properties:
            updates.append(_made(SetPropertiesUpdate, updates=properties))
        if not updates and base is not None and self._is_of_version(base):
            return (), ()
        snapshot = self._snapshot(metadata, schema, spec, base if is_kept else None)
        updates += _made_current(snapshot)
        updates += self._expiry(metadata, is_kept)
        gone = [each.spec_id for each in metadata.partition_specs if each.fields and each.spec_id != spec.spec_id]
        if gone and not is_kept:  # their columns are gone: Iceberg's library before 1.10 reads no table that has them
            updates.append(_made(RemovePartitionSpecsUpdate, spec_ids=gone))
        requirements = (
            _made(AssertTableUUID, uuid=metadata.table_uuid),
            _made(AssertRefSnapshotId, ref=MAIN_BRANCH, snapshot_id=base.snapshot_id if base else None),
            _made(AssertCurrentSchemaId, current_schema_id=metadata.current_schema_id),
            _made(AssertLastAssignedFieldId, last_assigned_field_id=metadata.last_column_id),
            _made(AssertLastAssignedPartitionId, last_assigned_partition_id=metadata.last_partition_id),
        )
        return requirements, tuple(updates)

    def discard(self) -> None:
        """Deletes the files of a commit that was refused."""
        for path in self._written:
            self._storage.remove(path)

    def _has_partitions(self, metadata: TableMetadata) -> bool:
        """Whether the files of its snapshots are partitioned as those of the Delta table. A table of before there were
        partitions does not say so, and has none."""
        wanted = partition_columns_text(self._published.partition_by)
        return metadata.properties.get(PARTITION_BY, partition_columns_text(())) == wanted

    def _is_of_version(self, snapshot: Snapshot) -> bool:
        told = _summary_of(snapshot)
        wanted = self._published.id, str(self._published.version), str(self._at)
        return (told.get(DELTA_TABLE), told.get(VERSION), told.get(TIME)) == wanted

    def _expiry(self, metadata: TableMetadata, is_kept: bool) -> Iterator[TableUpdate]:
        """Removes snapshots that are older than the retention, and the oldest of very many; without `is_kept` all
        earlier ones."""
        named = {ref.snapshot_id for name, ref in metadata.refs.items() if is_kept or name == MAIN_BRANCH}
        if not is_kept:
            yield from (_made(RemoveSnapshotRefUpdate, ref_name=name) for name in metadata.refs if name != MAIN_BRANCH)
            named = set()
        oldest = _now_ms() - self._of.options.retention_hours * 3_600_000
        found = sorted(metadata.snapshots, key=lambda each: each.timestamp_ms)
        many = len(found) - SNAPSHOTS_MAX
        old = [
            each.snapshot_id
            for number, each in enumerate(found)
            if each.snapshot_id not in named and (not is_kept or each.timestamp_ms < oldest or number < many)
        ]
        if old:
            yield _made(RemoveSnapshotsUpdate, snapshot_ids=old)

    def _snapshot(
        self, metadata: TableMetadata, schema: Schema, spec: PartitionSpec, base: Snapshot | None
    ) -> Snapshot:
        """Writes the files of a snapshot. `base`: the one before; None where nothing of it is kept."""
        id, sequence = metadata.new_snapshot_id(), metadata.next_sequence_number()
        known, manifests = self._entries(base)
        entries = list(self._next_entries(known, id, schema, spec))
        changed = [each for each in entries if each.status != ManifestEntryStatus.EXISTING]
        name = f"{id}-{uuid.uuid4().hex}"
        if entries and (changed or not manifests):
            manifests = [self._write_manifest(f"{FOLDER}/{name}-m0.avro", entries, id, schema, spec)]
        listed = f"{FOLDER}/snap-{name}.avro"
        parent = metadata.current_snapshot_id
        self._written.append(listed)
        with write_manifest_list(
            _FORMAT, self._io.new_output(f"{self._root}/{listed}"), id, parent, sequence, "deflate"
        ) as writer:
            writer.add_manifests(manifests if entries else [])
        is_append = base is not None and all(each.status == ManifestEntryStatus.ADDED for each in changed)
        return _made(
            Snapshot,
            snapshot_id=id,
            parent_snapshot_id=parent,
            sequence_number=sequence,
            timestamp_ms=max(_now_ms(), metadata.last_updated_ms),
            manifest_list=f"{self._root}/{listed}",
            summary=Summary(Operation.APPEND if is_append else Operation.OVERWRITE, **self._summary(entries)),
            schema_id=schema.schema_id,
        )

    def _write_manifest(
        self, path: str, entries: list[ManifestEntry], id: int, schema: Schema, spec: PartitionSpec
    ) -> ManifestFile:
        self._written.append(path)
        with write_manifest(
            _FORMAT, spec, schema, self._io.new_output(f"{self._root}/{path}"), id, "deflate"
        ) as writer:
            for each in entries:
                writer.add_entry(each)
        return writer.to_manifest_file()

    def _entries(self, base: Snapshot | None) -> tuple[dict[str, ManifestEntry], list[ManifestFile]]:
        """The live files of the snapshot before, by their names, with its manifests; none where another program made
        it, or has removed a file of it: then all files are new ones."""
        if base is None or DELTA_TABLE not in _summary_of(base):
            return {}, []
        try:
            manifests = base.manifests(self._io)
            entries = [entry for each in manifests for entry in each.fetch_manifest_entry(self._io)]
        except FileNotFoundError:
            return {}, []
        return {each.data_file.file_path: each for each in entries}, manifests

    def _next_entries(
        self, known: Mapping[str, ManifestEntry], id: int, schema: Schema, spec: PartitionSpec
    ) -> Iterator[ManifestEntry]:
        live = {f"{self._root}/{unquote(file.path)}": file for file in self._published.files}
        for name, entry in known.items():
            if name in live:
                status, of = ManifestEntryStatus.EXISTING, entry.snapshot_id
            else:
                status, of = ManifestEntryStatus.DELETED, id
            yield ManifestEntry.from_args(
                status=status,
                snapshot_id=of,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
        for name, file in live.items():
            if name not in known:
                data_file = self._data_file(name, file, schema, spec)
                yield ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=id, data_file=data_file)

    def _data_file(self, name: str, file: PublishedFile, schema: Schema, spec: PartitionSpec) -> DataFile:
        """Without bounds of columns: files are by hashes, so each has nearly all values, or those of its partition."""
        rows = file.rows
        if rows < 0:  # as another program wrote it
            with self._storage.open_input(unquote(file.path)) as opened:
                rows = pq.read_metadata(opened).num_rows
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=name,
            file_format=FileFormat.PARQUET,
            partition=partition_record(schema, spec, file.partition),
            record_count=rows,
            file_size_in_bytes=file.size,
            column_sizes={},  # some readers ask for it
        )
        data_file.spec_id = spec.spec_id
        return data_file

    def _summary(self, entries: list[ManifestEntry]) -> dict[str, str]:
        numbers = {"total-delete-files": 0, "total-position-deletes": 0, "total-equality-deletes": 0}
        for kind, statuses in (
            ("added", {ManifestEntryStatus.ADDED}),
            ("deleted", {ManifestEntryStatus.DELETED}),
            ("total", {ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING}),
        ):
            files = [each.data_file for each in entries if each.status in statuses]
            size = {"added": "added-files-size", "deleted": "removed-files-size", "total": "total-files-size"}[kind]
            numbers |= {
                f"{kind}-data-files": len(files),
                f"{kind}-records": sum(each.record_count for each in files),
                size: sum(each.file_size_in_bytes for each in files),
            }
        told = {DELTA_TABLE: self._published.id, VERSION: str(self._published.version), TIME: str(self._at)}
        return {**{name: str(number) for name, number in numbers.items()}, **told}


def _made(kind: type[M], **members: Any) -> M:
    """A message of the catalogue's protocol, whose members have - for _."""
    return kind.model_validate({name.replace("_", "-"): value for name, value in members.items()})


def _made_current(snapshot: Snapshot) -> tuple[TableUpdate, ...]:
    ref = _made(
        SetSnapshotRefUpdate, ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
    )
    return _made(AddSnapshotUpdate, snapshot=snapshot), ref


def _summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _now_ms() -> int:
    return int(time.time() * 1000)
