"""Files of directories and buckets as a source: a binding is a list of file versions.

    remap rows  (table, file, size, modified_ns)      one per bound file; all kinds: bindings.py

A file is bound once it is whole (arrivals.py). Only the bound version is
read: a file that has changed by then gives an error row, or a dead letter.

Tables of one name in the spec (`successors.py`) bind the same files at the same tick, those that have begun: the first
of them looks for files. A successor begins with all that are bound (read_again.py). People are shown the files of the
last one that has begun, under the name of the spec.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from logging import getLogger
from time import monotonic

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark_persist import StagedFile, StorageError, restaged
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import FileRequest
from tidemark_protocol.messages.responses import FileOutcome, SourceFile, TableReport
from tidemark_protocol.plan.ingestion import MALFORMED_RECORD, FilesSource, FilesTable, IngestedTable
from tidemark_protocol.plan.successors import dead_letters, spec_name
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files import checks, read_again
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
from tidemark_replica.storage.files.generations import FileGenerations, beginning
from tidemark_replica.storage.files.listing import BoundFiles, FileVersion
from tidemark_replica.storage.files.problems import (
    DEAD_LETTERS_LOST,
    FILE_CODES,
    KEY_VIOLATED,
    FileProblem,
    problems_in_dead_letters,
    problems_in_table,
)
from tidemark_replica.storage.files.read_again import FilesGone, ReadAgain, check_read_again, not_read_again
from tidemark_replica.storage.files.reading import FileStaging, StagedRows, StageRows, stage_refused
from tidemark_replica.storage.keyed_rows.unique import key_violation
from tidemark_replica.storage.source import ACTIVITY_SECONDS, Source, SourceShards
from tidemark_replica.storage.table_reports import SnapshotProgress
from tidemark_replica.values.failure_text import log_text

LOG = getLogger(__name__)
# the number of times that a job is repeated because a file changed meanwhile
_READS_MAX = 3
RETRY_SECONDS = 30.0
"""The pause after which a successor that stopped reads again."""


class FilesIngestion(Source):
    """The `Source` of a `files:` DataSource."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: FilesSource, session: SparkSession, options: Options = None) -> None:
        """`options`: the options of buckets."""
        self._tables = FileGenerations(spec.tables)
        self._specs = self._tables.specs
        self._stores = {t.name: file_store(t, options) for t in spec.tables}
        self._stopped: dict[str, tuple[float, str]] = {}
        """The time after which a successor that cannot begin reads again, and the reason."""
        self._refusals: dict[str, dict[str, str]] = {}
        """The files that it refused, by the first table of a name with a successor that reads again."""
        self._first_times: dict[GlobalId, Time] = {}
        if any(map(is_bucket, spec.tables)):
            self.remap_schema = BUCKET_REMAP_SCHEMA
        self._session = session
        self._known = {name: BoundFiles() for name in self._tables.names}
        first = self._tables.first.items()
        self._arrivals = {name: arrivals_of(self._specs[table], self._stores[table]) for name, table in first}
        self._waiting: dict[tuple[str, str], SourceFile] = {}
        self._changed: dict[str, int] = {}
        self._unbound = dict.fromkeys(self._tables.names, 0)
        self._snapshots, self._read_bytes = SnapshotProgress(), dict.fromkeys(self._tables.names, 0)
        self._missing_bytes: dict[str, int | None] = dict.fromkeys(self._tables.names)
        """The bytes of files that wait for their turn, of folders alone: a bucket is listed bit by bit."""
        self._list = FileList()
        self._requests = FileRequests(self._tables, self._stores, session)
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
        self._changes, self._staged = [], [row for row in rows if row.kind == STAGED]
        self._tables.resume(rows, shards)
        self._stopped, self._refusals = {}, {}
        self._requests.resume(rows, shards)
        for name, first in self._tables.first.items():
            files = [row.file for row in rows if row.table == first and row.kind == BOUND]
            self._known[name] = BoundFiles()
            self._known[name].add(files)
            self._arrivals[name].resume(files)
            if not files:
                self._snapshots.begin(name, self._read_bytes[name])
            self._show(name, files)
        for table in self._tables.again:
            self._snapshots.begin(table, 0)

    def _show(self, name: str, files: list[FileVersion]) -> None:
        """Show these files as the bound ones of a name in the spec."""
        self._list.restore(name, files)
        self._list.set_released(name, self._requests.released(self._tables.first[name]).values())

    def ask(self, requests: tuple[FileRequest, ...]) -> None:
        self._requests.ask(requests)

    def outcomes(self) -> tuple[FileOutcome, ...]:
        return self._requests.outcomes()

    def discover(self, time: Time) -> pa.Table:
        self._read_problems()
        self._changes = self._requests.changes(time)
        self._read_again(time)  # before the looks: new files at each tick delay no beginning
        rows = [row.retracted() for row in self._staged]
        rows += [row for change in self._changes for row in change.rows]
        changed = {(change.request.table, change.request.file) for change in self._changes}
        self._waiting = {}
        for name, first in self._tables.first.items():
            if (begins := self._tables.complete(name)) and name not in {table for table, _ in changed}:
                marks = self._requests.last(first)
                rows += [row for table in begins for row in self._tables.beginning(table, marks)]
                continue  # new files are bound at the next tick, to all of them
            for file in self._arrived(name):
                if (name, file.name) not in changed:
                    for table in self._tables.begun[name]:
                        rows += [*self._requests.forgotten(table, file.name), BindingRow(table, BOUND, file)]
        self._list.set_pending([*self._waiting.values()][:LISTED_FILES])
        return binding_of(rows, self.remap_schema)

    def confirm(self, binding: pa.Table) -> None:
        rows = list(parse(binding))
        self._requests.confirm(rows)
        self._staged = [row for row in rows if row.kind == STAGED and row.diff > 0]
        for name, first in self._tables.first.items():
            bound = [row for row in rows if row.table == first and row.kind == BOUND]
            if bound:
                self._refusals.pop(first, None)
            self._known[name].remove([row.file.name for row in bound if row.diff < 0])
            files = [row.file for row in bound if row.diff > 0]
            self._known[name].add(files)
            self._read_bytes[name] += sum(file.size for file in files)
            self._arrivals[name].confirm(files)
        for change in self._changes:
            self._record_change(change)
        for name, first in self._tables.first.items():
            self._list.set_released(name, self._requests.released(first).values())
        for table, files in self._tables.confirm(rows).items():
            name = spec_name(table)
            self._stopped.pop(table, None)
            if self._tables.last(name) == table:
                self._list.drop(name)
                self._show(name, files)
                self._knows_problems = False
        if not self._tables.again:
            self._refusals = {}

    def _read_again(self, time: Time) -> None:
        """Reads a piece of the files that successors have not read yet: first for the one that has waited longest, then
        for the others, as long as bytes of the tick are left."""
        left, again = read_again.PIECE_BYTES, self._tables.again
        for table in list(again):
            if size := self._read_piece(self._specs[table], again[table], time, left):
                again[table] = again.pop(table)
                left -= size

    def _read_piece(self, spec: FilesTable, again: ReadAgain, time: Time, left_bytes: int) -> int:
        """Reads some of the files that a successor has not read yet, and returns their bytes. One that is gone, or
        another by now, stops it, unless the table before it has no rows of the file either. The other tables go on,
        whatever fails."""
        try:
            again.renew()
        except (OSError, StorageError) as error:
            LOG.warning("table %s: %s", spec.name, log_text(error))
        due, _ = self._stopped.get(spec.name, (0.0, ""))
        files = again.next_files(spec.max_files_per_tick, left_bytes)
        if not files or monotonic() < due:
            return 0
        table, first = self._tables.place(spec.name)[0], self._tables.first[spec_name(spec.name)]
        function = _stage_rows(spec, table, self._tables.dead_letters(spec.name), time)
        self._reading, failure = (monotonic(), _reading_text(spec.name, files)), ""
        try:
            bad = self._refused(first, {file.name for file in files})
            whole = [file for file in files if file.name not in bad]
            rows, unreadable = self._read_whole(spec, function, whole, stops=True)
            refused = stage_refused(function, {n: c for n, c in (bad | unreadable).items() if c != KEY_VIOLATED})
            twice = [name for name, code in bad.items() if code == KEY_VIOLATED]
            keys = stage_refused(replace(function, set_aside=False), dict.fromkeys(twice, KEY_VIOLATED))
            letters = rows.dead_letters + refused.dead_letters
            again.add(files, StagedRows(rows.table + refused.table + keys.table, letters))
        except FilesGone as gone:
            again.put_first(gone.names)
            failure = str(gone)
        except (PySparkException, Py4JError, OSError, StorageError, SourceUnusable) as error:
            LOG.warning("table %s: %s", spec.name, log_text(error))
            failure = not_read_again(spec, error)
        finally:
            self._reading = (0.0, "")
        self._stopped.pop(spec.name, None)
        if failure:
            self._stopped[spec.name] = (monotonic() + RETRY_SECONDS, failure)
        return max(sum(file.size for file in files), 1)

    def _refused(self, table: str, files: Collection[str]) -> dict[str, str]:
        """The files that the table refused as a whole, and the codes: it has none of their rows. The shards are read
        anew once the table has bound something."""
        if table not in self._refusals:
            found: dict[str, str] = {}
            for each, problems in ((table, problems_in_table), (dead_letters(table), problems_in_dead_letters)):
                for ingested, shard in self._shards.tables if self._shards is not None else ():
                    if ingested.table.name == each:
                        found |= {n: p.code for n, p in problems(shard).items() if p.code in FILE_CODES}
            self._refusals[table] = found
        return {name: code for name, code in self._refusals[table].items() if name in files}

    def unbound_tables(self) -> Collection[str]:
        return self._tables.unbound_tables()

    def stop_reasons(self) -> Mapping[str, str]:
        return {table: text for table, (_, text) in self._stopped.items()}

    def retries(self) -> bool:
        """The files are looked for again without that."""
        return False

    def first_time(self, table: IngestedTable) -> Time | None:
        return self._first_times.get(table.id)

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        rows = [row for row in parse(binding) if row.diff > 0]
        begins = beginning(rows)
        wanted = {t.table.name: t for t in tables if self._tables.takes(t, begins)}
        self._first_times |= {t.id: time for t in wanted.values() if self._tables.owner(t.table.name) in begins}
        staged: dict[GlobalId, list[StagedFile]] = {t.id: [] for t in wanted.values()}
        for row in rows:
            if row.kind == STAGED and (table := wanted.get(row.table)) is not None:
                staged[table.id].append(restaged(table.shard.location, row.staged()))
        for name, spec in self._specs.items():
            if name in begins:
                continue  # its rows were staged before
            by_request = {row.file.name for row in rows if row.table == name and row.request}
            bound = [row.file for row in rows if row.table == name and row.kind == BOUND]
            files = [file for file in bound if file.name not in by_request]
            table, dead = wanted.get(name), wanted.get(dead_letters(name))
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
        return self._list.listed()

    def progress(self) -> Mapping[str, TableReport]:
        reports = {}
        for table in self._specs:
            name = spec_name(table)
            if (again := self._tables.again.get(table)) is not None:
                left, percent = again.files_left, self._snapshots.percent(table, *again.sizes)
                reports[table] = TableReport(table, behind=left, unit="files", snapshot_percent=percent)
                continue
            percent = self._snapshots.percent(name, self._read_bytes[name], self._missing_bytes[name])
            malformed = self._list.malformed(name)
            reports[table] = TableReport(
                table, behind=self._unbound[name], unit="files", snapshot_percent=percent, malformed=malformed
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

    def close(self) -> None:
        self._tables.close()

    def _arrived(self, name: str) -> list[FileVersion]:
        """The files to bind now. The others are noted."""
        table = self._specs[self._tables.first[name]]
        arrived = self._arrivals[name].look(self._known[name], self._requests.released(table.name))
        self._changed[name] = arrived.changed
        self._unbound[name] = arrived.unbound
        if not is_bucket(table):
            self._missing_bytes[name] = sum(each.size for each in arrived.waiting if not each.reason)
        for each in arrived.waiting:
            if each.reason or len(self._waiting) < LISTED_FILES:  # the others would not be shown
                self._waiting[(name, each.name)] = SourceFile(name, each.name, each.size, PENDING, each.reason)
        return arrived.files

    def _stage_table(
        self, spec: FilesTable, function: StageRows, files: list[FileVersion], before: Sequence[StagedFile]
    ) -> StagedRows:
        """Stages what the files give. A file that cannot be read as a whole gives an error row, or a dead letter.
        `before`: the files that requests staged for the table at this tick."""
        rows, bad = self._read_whole(spec, function, files)
        if function.location is None:  # the table has its rows, the dead letters cannot be read any more
            bad = dict.fromkeys(bad, DEAD_LETTERS_LOST)
        refused = stage_refused(function, bad)
        if spec.primary_key and function.location is not None:
            good = [file for file in files if file.name not in bad]
            unique, twice = self._unique(spec, function, good, rows, before)
            in_error = stage_refused(replace(function, set_aside=False), dict.fromkeys(twice, KEY_VIOLATED))
            rows.table[:] = unique + in_error.table
            bad |= dict.fromkeys(twice, KEY_VIOLATED)
        if self._tables.last(spec_name(spec.name)) == spec.name:
            self._record(spec, function, files, rows, bad)
        return StagedRows(rows.table + refused.table, rows.dead_letters + refused.dead_letters, rows.counts)

    def _read_whole(
        self, spec: FilesTable, function: StageRows, files: list[FileVersion], *, stops: bool = False
    ) -> tuple[StagedRows, dict[str, str]]:
        """Reads until the files did not change during the job. Returns the rows, and the codes of files that cannot be
        read as a whole. `stops`: such files are not passed over. Raises SourceUnusable; as `check_read_again` where it
        `stops`."""
        bad: dict[str, str] = {}
        store = self._stores[spec.name]
        staging = FileStaging(self._session, spec, store, function)
        for _ in range(_READS_MAX):
            for file in files:
                if file.name not in bad and (code := checks.file_problem(spec, store, function.columns, file)):
                    bad[file.name] = code
            if stops:
                check_read_again(spec, bad)
            rows = staging.stage([f for f in files if f.name not in bad])
            moved = {f.name: code for f in files if f.name not in bad and (code := checks.has_changed(store, f))}
            moved = rows.problems | moved
            if not moved:
                return rows, bad
            bad |= moved
            if stops:
                check_read_again(spec, bad)
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
        staging = FileStaging(self._session, spec, store, replace(function, dead_letter=None))
        taken: list[StagedFile] = []
        refused: list[str] = []
        for half in (files[: len(files) // 2], files[len(files) // 2 :]):
            # letters and counts were staged with all files
            alone = staging.stage(half)
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
            self._list.add(spec_name(spec.name), file, function.time, good, problem)

    def _record_change(self, change: RequestedChange) -> None:
        """Puts what a request changed into the list."""
        table, name = change.request.table, change.request.file
        self._list.forget(table, name)
        if change.new is None:
            return
        new, problem = change.new, None
        if new.malformed:
            in_error = self._specs[self._tables.first[table]].on_bad_record != "deadLetter"
            problem = FileProblem(MALFORMED_RECORD, new.malformed, in_error=in_error)
        self._list.add(table, new.version, change.time, new.rows, problem)

    def _read_problems(self) -> None:
        """Reads from the shards, once, what is wrong with files that were bound before."""
        if self._knows_problems or self._shards is None:
            return
        shown = self._tables.spec_names()
        for ingested, shard in self._shards.tables:
            if (table := ingested.table.name) in shown:
                problems = problems_in_table if table in self._specs else problems_in_dead_letters
                self._list.add_problems(shown[table], problems(shard))
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
