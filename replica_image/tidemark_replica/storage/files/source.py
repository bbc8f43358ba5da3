"""Files of directories and buckets as a source: a binding is a list of file versions.

    remap rows  (table, file, size, modified_ns)      one per bound file; all kinds: bindings.py

A file is bound once it is whole (arrivals.py). Only the bound version is
read: a file that has changed by then gives an error row, or a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from logging import getLogger
from time import monotonic

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark_persist import StagedFile, restaged
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import FileRequest
from tidemark_protocol.messages.responses import FileOutcome, SourceFile, TableReport
from tidemark_protocol.plan.ingestion import DEAD_LETTER, MALFORMED_RECORD, FilesSource, FilesTable, IngestedTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files import checks
from tidemark_replica.storage.files.arrivals import arrivals_of
from tidemark_replica.storage.files.bindings import (
    BOUND,
    BUCKET_REMAP_SCHEMA,
    REMAP_SCHEMA,
    STAGED,
    BindingRow,
    binding_of,
    parse,
)
from tidemark_replica.storage.files.file_list import LISTED_FILES, PENDING, FileList
from tidemark_replica.storage.files.file_requests import FileRequests, RequestedChange
from tidemark_replica.storage.files.file_store import file_store, is_bucket
from tidemark_replica.storage.files.listing import BoundFiles, FileVersion
from tidemark_replica.storage.files.problems import (
    DEAD_LETTERS_LOST,
    KEY_VIOLATED,
    FileProblem,
    problems_in_dead_letters,
    problems_in_table,
)
from tidemark_replica.storage.files.reading import StagedRows, StageRows, stage, stage_refused
from tidemark_replica.storage.keyed_rows.unique import key_violation
from tidemark_replica.storage.source import ACTIVITY_SECONDS, Source, SourceShards
from tidemark_replica.storage.table_reports import SnapshotProgress

LOG = getLogger(__name__)
# how often a job is repeated because a file changed meanwhile
_READS_MAX = 3


class FilesIngestion(Source):
    """The `Source` of a `files:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: FilesSource, session: SparkSession, options: Options = None) -> None:
        """`options`: the options of buckets."""
        self._specs = {t.name: t for t in spec.tables}
        self._stores = {t.name: file_store(t, options) for t in spec.tables}
        if any(map(is_bucket, spec.tables)):
            self.remap_schema = BUCKET_REMAP_SCHEMA
        self._session = session
        self._known = {name: BoundFiles() for name in self._specs}
        self._arrivals = {name: arrivals_of(table, self._stores[name]) for name, table in self._specs.items()}
        self._waiting: dict[tuple[str, str], SourceFile] = {}
        self._changed: dict[str, int] = {}
        self._unbound = dict.fromkeys(self._specs, 0)
        self._snapshots, self._read_bytes = SnapshotProgress(), dict.fromkeys(self._specs, 0)
        self._missing_bytes: dict[str, int | None] = dict.fromkeys(self._specs)
        """The bytes of files that wait for their turn, of folders alone: a bucket is listed bit by bit."""
        self._list = FileList()
        self._requests = FileRequests(self._specs, self._stores, session)
        self._changes: list[RequestedChange] = []
        self._staged: list[BindingRow] = []
        """The STAGED rows of the last binding: they are retracted in the next one."""
        self._shards: SourceShards | None = None
        self._knows_problems = False
        self._reading = (0.0, "")
        """The time since when files are read, and their names."""

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._list, self._shards, self._knows_problems = FileList(), shards, False
        rows = list(parse(bound))
        self._requests.resume(rows, shards)
        self._changes, self._staged = [], [row for row in rows if row.kind == STAGED]
        for name in self._specs:
            files = [row.file for row in rows if row.table == name and row.kind == BOUND]
            self._known[name] = BoundFiles()
            self._known[name].add(files)
            self._arrivals[name].resume(files)
            if not files:
                self._snapshots.begin(name, self._read_bytes[name])
            self._list.restore(name, files)
            self._list.set_released(name, self._requests.released(name).values())

    def ask(self, requests: tuple[FileRequest, ...]) -> None:
        self._requests.ask(requests)

    def outcomes(self) -> tuple[FileOutcome, ...]:
        return self._requests.outcomes()

    def discover(self, time: Time) -> pa.Table:
        self._read_problems()
        self._changes = self._requests.changes(time)
        rows = [row.retracted() for row in self._staged]
        rows += [row for change in self._changes for row in change.rows]
        changed = {(change.request.table, change.request.file) for change in self._changes}
        self._waiting = {}
        for name, table in self._specs.items():
            for file in self._arrived(table):
                if (name, file.name) not in changed:
                    rows += [*self._requests.forgotten(name, file.name), BindingRow(name, BOUND, file)]
        self._list.set_pending([*self._waiting.values()][:LISTED_FILES])
        return binding_of(rows, self.remap_schema)

    def confirm(self, binding: pa.Table) -> None:
        rows = list(parse(binding))
        self._requests.confirm(rows)
        self._staged = [row for row in rows if row.kind == STAGED and row.diff > 0]
        for name in self._specs:
            bound = [row for row in rows if row.table == name and row.kind == BOUND]
            self._known[name].remove([row.file.name for row in bound if row.diff < 0])
            files = [row.file for row in bound if row.diff > 0]
            self._known[name].add(files)
            self._read_bytes[name] += sum(file.size for file in files)
            self._arrivals[name].confirm(files)
        for change in self._changes:
            self._record_change(change)
        for name in self._specs:
            self._list.set_released(name, self._requests.released(name).values())

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        wanted = {t.table.name: t for t in tables}
        rows = [row for row in parse(binding) if row.diff > 0]
        staged: dict[GlobalId, list[StagedFile]] = {t.id: [] for t in wanted.values()}
        for row in rows:
            if row.kind == STAGED and (table := wanted.get(row.table)) is not None:
                staged[table.id].append(restaged(table.shard.location, row.staged()))
        for name, spec in self._specs.items():
            by_request = {row.file.name for row in rows if row.table == name and row.request}
            bound = [row.file for row in rows if row.table == name and row.kind == BOUND]
            files = [file for file in bound if file.name not in by_request]
            table, dead = wanted.get(name), wanted.get(name + DEAD_LETTER)
            if not files or (table is None and dead is None):
                continue
            self._reading = (monotonic(), _reading_text(name, files))
            before = staged[table.id] if table is not None else []
            try:
                made = self._stage_table(spec, _stage_rows(spec, table, dead, time), files, before)
            finally:
                self._reading = (0.0, "")
            if table is not None:
                staged[table.id] += made.table
            if dead is not None:
                staged[dead.id] += made.dead_letters
        return staged

    def counters(self) -> Mapping[str, int]:
        return {
            "files": sum(len(known) for known in self._known.values()),
            "waiting_files": sum(1 for file in self._waiting.values() if file.reason),
            "changed_files": sum(self._changed.values()),
            "bad_files": self._list.in_error,
        }

    def files(self) -> tuple[SourceFile, ...]:
        return self._list.shown()

    def progress(self) -> Mapping[str, TableReport]:
        reports = {}
        for name, unbound in self._unbound.items():
            percent = self._snapshots.percent(name, self._read_bytes[name], self._missing_bytes[name])
            malformed = self._list.malformed(name)
            reports[name] = TableReport(
                name, behind=unbound, unit="files", snapshot_percent=percent, malformed=malformed
            )
        return reports

    def activity(self) -> str:
        began, text = self._reading
        return text if text and monotonic() - began >= ACTIVITY_SECONDS else ""

    def warning(self) -> str:
        noted = (file for file in self._waiting.values() if file.reason)
        texts = [f"{file.file}: {file.reason}" for file in islice(noted, 3)]
        changed = sum(self._changed.values())
        if changed:
            texts.append(f"{changed} file(s) changed after they were read; their rows stay as they were")
        return "; ".join(texts)

    def _arrived(self, table: FilesTable) -> list[FileVersion]:
        """The files to bind now. The others are noted."""
        arrived = self._arrivals[table.name].look(self._known[table.name], self._requests.released(table.name))
        self._changed[table.name] = arrived.changed
        self._unbound[table.name] = arrived.unbound
        if not is_bucket(table):
            self._missing_bytes[table.name] = sum(each.size for each in arrived.waiting if not each.reason)
        for waiting in arrived.waiting:
            self._wait(table, waiting.name, waiting.size, waiting.reason)
        return arrived.files

    def _wait(self, table: FilesTable, name: str, size: int, reason: str = "") -> None:
        """Note that the file is not bound yet. Files without a reason are kept as long as they would be shown."""
        if reason or len(self._waiting) < LISTED_FILES:
            self._waiting[(table.name, name)] = SourceFile(table.name, name, size, PENDING, reason)

    def _stage_table(
        self, spec: FilesTable, function: StageRows, files: list[FileVersion], before: Sequence[StagedFile]
    ) -> StagedRows:
        """Reads until the files did not change during the job. A file that cannot be read as a whole gives an error
        row, or a dead letter. `before`: the files that requests staged for the table at this tick."""
        bad: dict[str, str] = {}
        store = self._stores[spec.name]
        for _ in range(_READS_MAX):
            for file in files:
                if file.name not in bad and (code := checks.file_problem(spec, store, function.columns, file)):
                    bad[file.name] = code
            rows = stage(self._session, spec, store, function, [f for f in files if f.name not in bad])
            moved = {f.name: code for f in files if f.name not in bad and (code := checks.has_changed(store, f))}
            moved = rows.problems | moved
            if not moved:
                if function.location is None:  # the table has its rows, the dead letters cannot be read any more
                    bad = dict.fromkeys(bad, DEAD_LETTERS_LOST)
                refused = stage_refused(function, bad)
                if spec.primary_key and function.location is not None:
                    good = [file for file in files if file.name not in bad]
                    unique, twice = self._unique(spec, function, good, rows, before)
                    in_error = stage_refused(replace(function, set_aside=False), dict.fromkeys(twice, KEY_VIOLATED))
                    rows.table[:] = unique + in_error.table
                    bad |= dict.fromkeys(twice, KEY_VIOLATED)
                self._record(spec, function, files, rows, bad)
                return StagedRows(rows.table + refused.table, rows.dead_letters + refused.dead_letters, rows.counts)
            bad |= moved
        raise _changing(spec)

    def _unique(
        self,
        spec: FilesTable,
        function: StageRows,
        files: list[FileVersion],
        rows: StagedRows,
        before: Sequence[StagedFile],
    ) -> tuple[list[StagedFile], list[str]]:
        """The staged rows of files that do not violate the primary key, and the names of the others. The first by name
        of two files with one key is taken. `rows`: what all of the files gave."""
        assert self._shards is not None
        (shard,) = (shard for table, shard in self._shards.tables if table.table.name == spec.name)
        violation = key_violation(shard, spec.primary_key, [*before, *rows.table])
        if violation is None:
            return rows.table, []
        if len(files) <= 1:
            for file in files:
                LOG.warning("table %s: file %s: %s", spec.name, file.name, violation.log_text)
            return [], [file.name for file in files]
        files, store = sorted(files, key=lambda file: file.name), self._stores[spec.name]
        taken: list[StagedFile] = []
        refused: list[str] = []
        for half in (files[: len(files) // 2], files[len(files) // 2 :]):
            # letters and counts were staged with all files
            alone = stage(self._session, spec, store, replace(function, dead_letter=None), half)
            if alone.problems or any(checks.has_changed(store, file) for file in half):
                raise _changing(spec)
            unique, twice = self._unique(spec, function, half, alone, [*before, *taken])
            taken, refused = taken + unique, refused + twice
        return taken, refused

    def _record(
        self, spec: FilesTable, function: StageRows, files: list[FileVersion], rows: StagedRows, bad: Mapping[str, str]
    ) -> None:
        """Puts the files into the list, with what became of them."""
        for file in files:
            good, malformed = rows.counts.get(file.name, (0, 0))
            problem = None
            if code := bad.get(file.name):
                good = 0
                problem = FileProblem(code, 1, in_error=code == KEY_VIOLATED or not function.writes_letters)
            elif malformed:
                problem = FileProblem(MALFORMED_RECORD, malformed, in_error=not function.set_aside)
            self._list.add(spec.name, file, function.time, good, problem)

    def _record_change(self, change: RequestedChange) -> None:
        """Puts what a request changed into the list."""
        table, name = change.request.table, change.request.file
        self._list.forget(table, name)
        if change.new is None:
            return
        new, problem = change.new, None
        if new.malformed:
            in_error = self._specs[table].on_bad_record != "deadLetter"
            problem = FileProblem(MALFORMED_RECORD, new.malformed, in_error=in_error)
        self._list.add(table, new.version, change.time, new.rows, problem)

    def _read_problems(self) -> None:
        """Reads from the shards, once, what is wrong with files that were bound before."""
        if self._knows_problems or self._shards is None:
            return
        for ingested, shard in self._shards.tables:
            name = ingested.table.name
            if name in self._specs:
                self._list.add_problems(name, problems_in_table(shard))
            elif (base := name.removesuffix(DEAD_LETTER)) in self._specs:
                self._list.add_problems(base, problems_in_dead_letters(shard))
        self._knows_problems = True


def _changing(spec: FilesTable) -> SourceUnusable:
    return SourceUnusable(
        f"table {spec.name}: files change while they are read; write them elsewhere and move them in when complete"
    )


def _stage_rows(spec: FilesTable, table: IngestedTable | None, dead: IngestedTable | None, time: Time) -> StageRows:
    if spec.columns is None:
        raise SourceUnusable(f"table {spec.name}: its schema is neither given nor inferred yet")
    location, dead_letter = (t.shard.location if t is not None else None for t in (table, dead))
    return StageRows(spec.columns, time, location, dead_letter, set_aside=spec.on_bad_record == "deadLetter")


def _reading_text(table: str, files: list[FileVersion]) -> str:
    megabytes = sum(file.size for file in files) / 1e6
    return f"reads {len(files)} file(s) of table {table}, {megabytes:.0f} MB"
