"""A copy of one table that a thread makes beside the ticks: step by step, each of which may be tried again."""

from __future__ import annotations

from dataclasses import replace
from logging import getLogger
from time import monotonic

from tidemark_persist import InvalidStagedFile, Shard, StagedFile, open_shard, remove_staged, restaged
from tidemark_protocol.ids import Time
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.file_reads import FileRead, snapshot_reads
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.key_checks import ViolatingVersions
from tidemark_replica.storage.delta.physical_names import name_of
from tidemark_replica.storage.delta.pieces import Reading
from tidemark_replica.storage.delta.stop import SNAPSHOT_FAILED
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.failure_text import log_text, public_text_with_type

LOG = getLogger(__name__)
RETRY_SECONDS = 30.0
"""The longest pause after which a step that failed is tried again."""
RENEW_SECONDS = 3 * 3600.0
"""Older data files are copied, so that they are young when they are bound."""
ERROR_LENGTH_MAX = 500


class TableCopy:
    """The copy of the version that is the newest as it begins. `location`: of the table's shard. `time`: of the rows.

    `version`, `files`: what is copied, and the staged files. `failure`: the reason for which this version cannot be
    copied. `trouble`: a failure after which the same step is tried again, for people."""

    def __init__(self, table: FollowedTable, location: str, time: Time) -> None:
        self.table, self.location, self.time = table, location, time
        self.version: BoundVersion | None = None
        self.files: list[StagedFile] = []
        self.failure: TableStopped | None = None
        self.trouble = ""
        self.is_whole = self.is_given_up = False
        self.due_at, self._failures = 0.0, 0
        self.reading = Reading(table.name, 0, 0, monotonic())

    @property
    def has_ended(self) -> bool:
        return self.is_whole or self.failure is not None

    @property
    def bytes_left(self) -> int:
        return self.reading.size - self.reading.read

    def bound(self, before: BoundVersion | None) -> BoundVersion:
        """The version of a whole copy, to be bound behind `before`, which recovery then passes over."""
        assert self.version is not None
        return replace(self.version, restarts=before.restarts + 1 if before else 0)

    def fits(self, shard: Shard) -> bool:
        """Whether the shard has what it had when the files were staged."""
        raise NotImplementedError

    def advance(self, violating: ViolatingVersions) -> None:
        """Takes the next step. It raises nothing."""
        try:
            self.renew()
            if self.version is None:
                self._open(violating)
            elif self._has_more():
                self._stage(self.version)
            else:
                violating.check(self.table, open_shard(self.location), self.version, self.files)
                self.renew()  # the check may have taken hours, and the tick that binds waits for no renewal
                self.trouble, self.is_whole = "", True  # in this order: a table in trouble takes no binding
            self.trouble, self._failures = "", 0
        except TableStopped as error:
            self.failure = error
        except InvalidStagedFile:  # nothing was done for many hours
            self.remove_files()
            self.version, self.files = None, []
        except BaseException as error:  # panics of Rust, too, are of this table alone
            if not self.is_given_up:
                LOG.warning("table %s of a delta source: %s", self.table.name, log_text(error))
                text = public_text_with_type(error)[:ERROR_LENGTH_MAX]
                self.trouble = f"{SNAPSHOT_FAILED}: table {self.table.name}: {text}; it is tried again"
                self.due_at = monotonic() + min(2.0 ** min(self._failures, 5), RETRY_SECONDS)
                self._failures += 1

    def renew(self, age_seconds: float = RENEW_SECONDS) -> None:
        """Copies staged files that are older. Raises StorageError; InvalidStagedFile where one is gone."""
        for place, old in enumerate(self.files):
            self.files[place] = restaged(self.location, old, age_seconds=age_seconds)
            if self.files[place] is not old:
                remove_staged(self.location, [old])

    def remove_files(self) -> None:
        """No binding names them."""
        remove_staged(self.location, self.files)

    def check_wanted(self) -> None:
        """Raises SourceUnusable where the copy was given up."""
        if self.is_given_up:
            raise SourceUnusable("the table is not ingested any more")

    def _open(self, violating: ViolatingVersions) -> None:
        version = self.table.newest()
        violating.check_known(self.table, version)
        names = arrow_schema(self.table.columns).names
        reads = snapshot_reads(self.table.open(version), dict(zip(names, map(name_of, version.physical), strict=True)))
        self.reading = Reading(self.table.name, version.version, sum(r.size for r in reads), self.reading.began)
        self._begin(reads)
        self.version = version

    def _begin(self, reads: list[FileRead]) -> None:
        """Nothing is staged, and these files are all rows of the version."""
        raise NotImplementedError

    def _has_more(self) -> bool:
        """Whether rows are left that are not staged."""
        raise NotImplementedError

    def _stage(self, version: BoundVersion) -> None:
        """Stages the next rows. Nothing changes where it fails."""
        raise NotImplementedError
