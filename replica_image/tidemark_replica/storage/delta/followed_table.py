"""One Delta table that is followed: the version to bind next, and whether the bound one is still the table's own.

bound version N ──► entry N+1 there?            bind up to N+k: whole commits, bounded in number and bytes
                ──► entry N as it was bound?    nothing new
                ──► neither                     the log was cleaned (VersionGone), or is another (TableReplaced)
"""

from __future__ import annotations

from tidemark_persist import Storage
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.commit_log import DeltaCommit, log_path, read_commit
from tidemark_replica.storage.delta.definition import DeltaDefinition, check_features
from tidemark_replica.storage.delta.stop import COLUMN_CHANGED, TABLE_REPLACED, VERSION_GONE
from tidemark_replica.storage.delta.versions import TableVersion, check_location, newest_version, open_version
from tidemark_replica.storage.errors import SourceUnusable, TableStopped

COMMITS_MAX = 100
BYTES_MAX = 1 << 30
"""A tick binds at most so many commits, and no further one beyond so many bytes to read."""


class FollowedTable:
    """Raises TableStopped where the table cannot be followed, StorageError where the store fails."""

    def __init__(self, spec: DeltaTable, options: Options = None) -> None:
        """`options`: of a table in a bucket."""
        if spec.columns is None:
            raise SourceUnusable(f"table {spec.name}: its columns are not pinned yet")
        self.name, self.spec = spec.name, spec
        self.resnapshots = spec.on_gap == "resnapshot"
        self.columns: tuple[Column, ...] = spec.columns
        self.primary_key = spec.primary_key
        self.storage = Storage.at(spec.path, options)
        self.has_more = False
        """Whether `next` left versions for a later tick."""
        self._keeps_updates: dict[str, bool] = {}
        """By the table's id: of the one that is there now."""
        self._checked: tuple[int, object] | None = None
        """The version whose log entry was compared with its digest, and the entry's size and age then."""

    def newest(self) -> BoundVersion:
        """The newest version, to begin with, or to go on with after a gap: of the table that is there now."""
        table = open_version(self.storage)
        self._checked = None
        physical = table.definition.physical_names(self.columns)
        commit = read_commit(self.storage, table.version)
        digest = "" if commit is None else commit.digest
        return BoundVersion(table.definition.id, table.version, digest, physical)

    def next(self, bound: BoundVersion) -> BoundVersion | None:
        """The version to bind after the bound one; None if there is nothing new."""
        check_location(self.storage)
        self._check_entry(bound)
        last, total, self.has_more = bound, 0, True
        for version in range(bound.version + 1, bound.version + 1 + COMMITS_MAX):
            try:
                commit = read_commit(self.storage, version)
                if commit is None:
                    self.has_more = False
                    break
                total += commit.bytes_to_read
                if last is not bound and total > BYTES_MAX:
                    break
                last = self._after(last, commit)
            except TableStopped:
                if last is bound:
                    raise
                break  # this tick binds the versions before the one that stops the table
        if last is bound:
            self._check_quiet(bound)
            return None
        return last

    def versions_after(self, bound: BoundVersion) -> int | None:
        """The number of the table's versions after the bound one; None where the table is gone."""
        if not self.has_more:
            return 0
        newest = newest_version(self.storage)
        return None if newest is None else max(newest - bound.version, 0)

    def keeps_updates(self, bound: BoundVersion) -> bool:
        """Whether the rows of the table are updates (`DeltaDefinition`). A property of the table, not of a version."""
        if bound.table_id not in self._keeps_updates:
            definition = open_version(self.storage).definition
            self._check_id(bound, definition)
            self._keeps_updates = {bound.table_id: definition.keeps_updates}
        return self._keeps_updates[bound.table_id]

    def has_other(self, bound: BoundVersion) -> bool:
        """Whether the table has a version after the bound one, or another table is there."""
        newest = newest_version(self.storage)
        if newest is None or newest > bound.version:
            return newest is not None
        try:
            self._check_id(bound, open_version(self.storage).definition)
        except TableStopped as error:
            return error.reason == TABLE_REPLACED
        return False

    def commits(self, before: BoundVersion, after: BoundVersion) -> list[DeltaCommit]:
        """The commits between two bound versions."""
        commits = []
        for version in range(before.version + 1, after.version + 1):
            commit = read_commit(self.storage, version)
            if commit is None:
                raise self._version_gone(version)
            commits.append(commit)
        if commits[-1].digest != after.digest:
            raise self._replaced(f"has another version {after.version} than was read: another table?")
        return commits

    def open(self, bound: BoundVersion) -> TableVersion:
        """The bound version, which must be of the same table."""
        table = open_version(self.storage, bound.version)
        self._check_id(bound, table.definition)
        return table

    def _after(self, before: BoundVersion, commit: DeltaCommit) -> BoundVersion:
        if commit.protocol is not None:
            check_features(commit.protocol)
        if commit.metadata is not None:
            definition = DeltaDefinition.of_action(commit.metadata)
            self._check_id(before, definition)
            if definition.physical_names(self.columns) != before.physical:
                raise TableStopped(
                    COLUMN_CHANGED,
                    f"version {commit.version} dropped a declared column and added another of its name",
                )
        return BoundVersion(before.table_id, commit.version, commit.digest, before.physical, before.restarts)

    def _check_entry(self, bound: BoundVersion) -> None:
        """The bound version's entry is the one that was bound, unless the log was cleaned: then the table has to be the
        same. The entry is read again where its size or age changed."""
        stat = self.storage.stat(log_path(bound.version))
        if stat is None and self.storage.stat(log_path(bound.version + 1)) is not None:
            self._check_id(bound, open_version(self.storage).definition)
        if stat is None or not bound.digest or self._checked == (bound.version, stat):
            return
        commit = read_commit(self.storage, bound.version)
        if commit is not None and commit.digest != bound.digest:
            raise self._replaced(f"has another version {bound.version} than was read: another table?")
        self._checked = (bound.version, stat)

    def _check_quiet(self, bound: BoundVersion) -> None:
        """Nothing follows the bound version: is it the newest?"""
        if self.storage.stat(log_path(bound.version)) is not None:
            return
        if self.storage.stat(log_path(bound.version + 1)) is not None:
            return  # the table was written just now, and the older entry cleaned
        newest = open_version(self.storage)
        self._check_id(bound, newest.definition)
        if newest.version > bound.version:
            raise self._version_gone(bound.version + 1)
        if newest.version < bound.version:
            raise self._replaced(f"is at version {newest.version}; version {bound.version} was read before")

    def _check_id(self, bound: BoundVersion, definition: DeltaDefinition) -> None:
        if definition.id != bound.table_id:
            raise self._replaced(f"is another table now (id {definition.id}; followed is {bound.table_id})")

    def _version_gone(self, version: int) -> TableStopped:
        """The error of a version whose log entry was removed."""
        return TableStopped(
            VERSION_GONE, f"version {version} of {self.storage.location} is gone: its log entry was removed"
        )

    def _replaced(self, what: str) -> TableStopped:
        """The error of a location that has not the table that was read."""
        todo = "" if self.resnapshots else "; make a DataSource for it"
        return TableStopped(TABLE_REPLACED, f"{self.storage.location} {what}{todo}")
