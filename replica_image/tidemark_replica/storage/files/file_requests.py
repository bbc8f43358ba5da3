"""Requests of people about files that are bound: to let one go, or to have it read again.

    release   1.csv    -1 its binding      - its rows and its errors
    reread    1.csv    -1 its binding      - its rows and its errors
                       +1 another one      + what it holds now                     all at one tick

Errors and dead letters are retracted as the shards have them. Rows are read again from the bound version; where the
file is another by now, or gone, nothing is changed (FILE_CHANGED). A file that was refused as a whole has no rows.

A successor of a table (generations.py) has the same files: what a request changes is changed in all of them.

All updates are staged before the binding is minted, and the binding names the staged files. So a process that dies
leaves either nothing (the request comes again), or a binding that needs nothing but these files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark_persist import DIFF, Shard, StagedFile, consolidate, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.commands import RELEASE, REREAD, FileRequest
from tidemark_protocol.messages.responses import FileOutcome
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_protocol.plan.successors import dead_letters
from tidemark_replica.storage.files import checks
from tidemark_replica.storage.files.bindings import BOUND, STAGED, BindingRow, parse, staged_row
from tidemark_replica.storage.files.file_store import FileStore
from tidemark_replica.storage.files.generations import FileGenerations
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.problems import (
    DEAD_LETTERS_LOST,
    FILE_CODES,
    KEY_VIOLATED,
    error_code,
    errors_in_table,
    letter_code,
    letters_of_file,
)
from tidemark_replica.storage.files.reading import FileStaging, StagedRows, StageRows
from tidemark_replica.storage.files.streamed.compression import compression_of
from tidemark_replica.storage.keyed_rows.unique import KEY_IN_LOG, key_violation
from tidemark_replica.storage.source import SourceShards
from tidemark_replica.values.failure_text import public_text_with_type

LOG = logging.getLogger(__name__)
REQUESTS_PER_TICK = 16
_Key = tuple[str, str]
Place = tuple[IngestedTable, Shard]


class _Refused(Exception):
    """Nothing is changed; the message says why, and what to do."""


@dataclass(frozen=True)
class Reread:
    """The result of a file that was read again."""

    version: FileVersion
    rows: int
    malformed: int


@dataclass
class RequestedChange:
    """The rows of a binding for one request, at `time`. `new`: of a file that was read again."""

    request: FileRequest
    time: Time
    rows: list[BindingRow] = field(default_factory=list)
    new: Reread | None = None


class FileRequests:
    """The requests about the files of one source, and which of them are done."""

    def __init__(self, tables: FileGenerations, stores: Mapping[str, FileStore], session: SparkSession) -> None:
        self._tables, self._stores, self._session = tables, stores, session
        self._asked: tuple[FileRequest, ...] = ()
        self._last: dict[_Key, BindingRow] = {}
        self._refusals: dict[int, str] = {}
        self._shards: SourceShards | None = None

    def resume(self, bound: Sequence[BindingRow], shards: SourceShards) -> None:
        """Begins anew with the rows of the remap."""
        self._shards, self._last, self._refusals = shards, {}, {}
        self.confirm(bound)

    def ask(self, requests: tuple[FileRequest, ...]) -> None:
        """The requests that are to be done: all of them, each time."""
        self._asked = requests
        self._refusals = {r.id: self._refusals[r.id] for r in requests if r.id in self._refusals}

    def outcomes(self) -> tuple[FileOutcome, ...]:
        """The outcomes of the requests that were asked for last."""
        done = [FileOutcome(r.id) for r in self._asked if self._is_done(r)]
        return (*done, *(FileOutcome(id, text) for id, text in self._refusals.items()))

    def released(self, table: str) -> dict[str, FileVersion]:
        """The versions of files that were let go, by name."""
        return {row.file.name: row.file for (of, _), row in self._last.items() if of == table and row.kind == RELEASE}

    def last(self, table: str) -> list[BindingRow]:
        """The last request about each file of a table."""
        return [row for (of, _), row in self._last.items() if of == table]

    def forgotten(self, table: str, name: str) -> list[BindingRow]:
        """The rows that retract the last request about a file, since another version of it is bound."""
        last = self._last.get((table, name))
        return [last.retracted()] if last is not None else []

    def confirm(self, rows: Sequence[BindingRow]) -> None:
        """The rows were minted."""
        marks = [row for row in rows if row.request]
        for row in sorted(marks, key=lambda row: row.diff):
            if row.diff > 0:
                self._last[(row.table, row.file.name)] = row
            else:
                self._last.pop((row.table, row.file.name), None)

    def changes(self, time: Time) -> list[RequestedChange]:
        """Stages the updates of requests that are not done, at `time`. A request that is refused changes nothing."""
        waiting = [r for r in self._asked if not self._is_done(r) and r.id not in self._refusals]
        changes: dict[_Key, RequestedChange] = {}
        for request in waiting[:REQUESTS_PER_TICK]:
            if (request.table, request.file) in changes:
                continue  # two requests about one file have two ticks
            try:
                changes[(request.table, request.file)] = self._change(request, time, changes.values())
            except _Refused as refusal:
                self._refusals[request.id] = str(refusal)
            except (PySparkException, Py4JError, OSError) as error:
                LOG.warning("file %s of table %s: %s", request.file, request.table, error)
                self._refusals[request.id] = f"FILE_UNREADABLE: {public_text_with_type(error)[:500]}; ask again"
        return list(changes.values())

    def _is_done(self, request: FileRequest) -> bool:
        """The first table tells it: the marks of all tables that have begun are minted together."""
        last = self._last.get((self._tables.first.get(request.table, request.table), request.file))
        return last is not None and last.request == request.id

    def _change(self, request: FileRequest, time: Time, earlier: Iterable[RequestedChange]) -> RequestedChange:
        """`earlier`: of the same tick."""
        if request.table not in self._tables.names:
            raise _Refused(f"NO_SUCH_TABLE: the source has no table {request.table} of files")
        first, rereads = self._tables.first[request.table], request.action == REREAD
        bound = self._bound(first, request.file)
        if bound is None and not (rereads and request.file in self.released(first)):
            raise _Refused(f"NOT_BOUND: no file {request.file} of table {request.table} is bound")
        change = RequestedChange(request, time)
        for table in self._tables.begun[request.table]:
            self._change_table(change, table, bound, [*earlier, change])
        return change

    def _change_table(
        self, change: RequestedChange, table: str, bound: FileVersion | None, of_tick: Sequence[RequestedChange]
    ) -> None:
        """Adds the rows of one table to the change. `of_tick`: the changes of this tick, with this one."""
        request, rereads = change.request, change.request.action == REREAD
        job = self._job(table, change.time)
        change.rows += self.forgotten(table, request.file)
        mark = bound
        if bound is not None:
            change.rows.append(BindingRow(table, BOUND, bound, -1))
        if rereads:
            mark, staged = job.read_new(request.file)
            if change.new is not None and change.new.version != mark:
                raise _Refused(f"FILE_CHANGED: file {request.file} changed while it was read; ask again")
            good, malformed = staged.counts.get(request.file, (0, 0))
            change.new = Reread(mark, good, malformed)
            change.rows += [BindingRow(table, BOUND, mark), *job.rows_of(staged)]
        if bound is not None:
            change.rows += job.rows_of(job.retract(bound))
        if rereads:
            job.check_key(row for each in of_tick for row in each.rows)
        assert mark is not None
        change.rows.append(BindingRow(table, request.action, mark, request=request.id))

    def _bound(self, table: str, file: str) -> FileVersion | None:
        """The version in which the file is bound."""
        assert self._shards is not None
        upper = self._shards.remap.refresh().upper
        if upper == 0:
            return None
        rows = self._shards.bindings(Time(upper - 1))
        same = pc.and_(pc.equal(rows.column("table"), table), pc.equal(rows.column("file"), file))
        return next((row.file for row in parse(rows.filter(same)) if row.diff > 0), None)

    def _job(self, table: str, time: Time) -> _Job:
        spec, found, dead = self._tables.specs[table], self._find(table), self._find(dead_letters(table))
        if found is None or spec.columns is None:
            raise _Refused(f"NO_SUCH_TABLE: table {spec.name} is not ingested")
        places = (found[0].shard.location, dead[0].shard.location if dead else None)
        function = StageRows(spec.columns, time, *places, set_aside=spec.on_bad_record == "deadLetter")
        return _Job(self._session, spec, self._stores[table], function, found, dead)

    def _find(self, table: str) -> Place | None:
        assert self._shards is not None
        return next((found for found in self._shards.tables if found[0].table.name == table), None)


@dataclass(frozen=True)
class _Job(FileStaging):
    """Stages updates of one table and its dead letters, at one time. `place`: the table, and its shard; `dead`: the
    table of dead letters, and its shard, if there is one."""

    place: Place
    dead: Place | None

    def rows_of(self, staged: StagedRows) -> list[BindingRow]:
        """The rows of the binding that name the staged files."""
        of_dead = [staged_row(dead_letters(self.table.name), file) for file in staged.dead_letters]
        return [*(staged_row(self.table.name, file) for file in staged.table), *of_dead]

    def read_new(self, name: str) -> tuple[FileVersion, StagedRows]:
        """Stages what the file holds now. Raises _Refused where it cannot be read as a whole."""
        new = self.store.version_of(name)
        if new is None:
            raise _Refused(f"FILE_MISSING: there is no file {name} to read; release the one that was read")
        if not self.store.is_complete(name, self.table.format, compression_of(self.table, name)):
            raise _Refused(f"INCOMPLETE: file {name} looks half written; ask again when it is complete")
        code = checks.file_problem(self.table, self.store, self.function.columns, new)
        staged = self.stage([new]) if not code else StagedRows()
        if code := code or staged.problems.get(name):
            raise _Refused(f"{code}: file {name} still cannot be read; mend it, and ask again")
        if checks.has_changed(self.store, new):
            raise _Refused(f"FILE_CHANGED: file {name} changed while it was read; ask again")
        return new, staged

    def check_key(self, rows: Iterable[BindingRow]) -> None:
        """Raises _Refused where the staged files that the rows name would violate the table's primary key."""
        key = self.table.primary_key
        staged = [row.staged() for row in rows if (row.table, row.kind) == (self.table.name, STAGED)]
        violation = key_violation(self.place[1], key, staged) if key else None
        if violation is not None:
            LOG.warning("table %s: a request is refused: %s", self.table.name, violation.log_text)
            advice = f"{KEY_IN_LOG}; release the file that has it, or mend this one"
            raise _Refused(f"{KEY_VIOLATED}: {violation.text}; {advice}")

    def retract(self, bound: FileVersion) -> StagedRows:
        """Stages the retraction of all that the bound version gave. Raises _Refused where that is not known any
        more."""
        counted = errors_in_table(self.place[1]).items()
        errors = {text: count for text, count in counted if json.loads(text).get("expression") == bound.name}
        letters = consolidate(letters_of_file(self.dead[1], bound.name)) if self.dead is not None else None
        codes = {error_code(text) for text in errors}
        codes |= {letter_code(record) for record in (letters.column("record").to_pylist() if letters else ())}
        if DEAD_LETTERS_LOST in codes:
            raise _Refused(f"{DEAD_LETTERS_LOST}: what file {bound.name} gave is not known any more")
        done = StagedRows()
        if not codes & FILE_CODES and bound.size:
            done = self._retract_rows(bound)
        if errors:
            diffs = pa.array([-count for count in errors.values()], pa.int64())
            rows = self.function.error_rows(pa.array(list(errors), pa.string()), diffs)
            self._add(done.table, self.place, rows)
        if letters is not None and letters.num_rows and self.dead is not None:
            self._refuse_append_only(self.dead, bound.name)
            negative = pc.negate(letters.column(DIFF)).combine_chunks()
            batch = letters.select(["file", "record"]).combine_chunks().to_batches()[0]
            self._add(done.dead_letters, self.dead, self.function.stamped(batch, diffs=negative))
        return done

    def _retract_rows(self, bound: FileVersion) -> StagedRows:
        changed = (
            f"FILE_CHANGED: file {bound.name} is gone, or is another than was read, so its rows are not known any "
            "more; put back what was read, with its time of modification"
        )
        if checks.file_problem(self.table, self.store, self.function.columns, bound):
            raise _Refused(changed)
        staged = replace(self, function=self.function.retracting()).stage([bound])
        if staged.problems or checks.has_changed(self.store, bound):
            raise _Refused(changed)
        if staged.table:
            self._refuse_append_only(self.place, bound.name)
        return StagedRows(staged.table)

    def _add(self, to: list[StagedFile], table: Place, rows: pa.RecordBatch) -> None:
        if file := write_staged(table[0].shard.location, [rows], schema=table[1].schema):
            to.append(file)

    def _refuse_append_only(self, table: Place, name: str) -> None:
        """Dataflows rely on it that no row of such a table is taken back."""
        if table[0].table.monotonic:
            raise _Refused(
                f"APPEND_ONLY: table {table[0].table.name} only grows, so rows of file {name} cannot be taken back; "
                "make another DataSource without appendOnly"
            )
