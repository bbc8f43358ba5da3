"""Directories of files as a source: a binding is a list of file versions.

    remap rows  (table, file, size, modified_ns)      one per file, never retracted

A file is bound once it is complete and two listings, a tick apart, saw the same version. Only the bound version is
read: a file that has changed by then gives an error row, or a dead letter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tidemark_persist import DIFF, StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import SourceFile
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestedTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files import checks
from tidemark_replica.storage.files.file_list import LISTED_FILES, PENDING, FileList
from tidemark_replica.storage.files.listing import BoundFiles, FileVersion, is_complete, list_files
from tidemark_replica.storage.files.problems import (
    MALFORMED,
    Problem,
    problems_in_dead_letters,
    problems_in_table,
)
from tidemark_replica.storage.files.reading import StagedRows, StageRows, stage, stage_refused
from tidemark_replica.storage.source import SourceShards

DEAD_LETTER = "_dead_letter"
# how often a job is repeated because a file changed meanwhile
_READS_MAX = 3


class FilesIngestion:
    """The `Source` of a `files:` DataSource."""

    remap_schema = pa.schema(
        [
            pa.field("table", pa.string()),
            pa.field("file", pa.string()),
            pa.field("size", pa.int64()),
            pa.field("modified_ns", pa.int64()),
        ]
    )

    def __init__(self, spec: FilesSource, session: SparkSession) -> None:
        self._specs = {t.name: t for t in spec.tables}
        self._session = session
        self._known = {name: BoundFiles() for name in self._specs}
        self._last_listed: dict[str, dict[str, FileVersion]] = {name: {} for name in self._specs}
        self._waiting: dict[tuple[str, str], SourceFile] = {}
        self._changed: dict[str, int] = {}
        self._list = FileList()
        self._shards: SourceShards | None = None
        self._knows_problems = False

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._list, self._shards, self._knows_problems = FileList(), shards, False
        for name in self._specs:
            files = _files_of(bound, name)
            self._known[name] = BoundFiles()
            self._known[name].add(files)
            self._list.restore(name, files)

    def discover(self, time: Time) -> pa.Table:
        self._read_problems()
        rows: list[tuple[str, FileVersion]] = []
        self._waiting = {}
        for name, table in self._specs.items():
            rows += [(name, file) for file in self._settled(table)]
        self._list.set_pending([*self._waiting.values()][:LISTED_FILES])
        schema = self.remap_schema.append(pa.field(DIFF, pa.int64()))
        return pa.Table.from_arrays(
            [
                pa.array([name for name, _ in rows], pa.string()),
                pa.array([f.name for _, f in rows], pa.string()),
                pa.array([f.size for _, f in rows], pa.int64()),
                pa.array([f.modified_ns for _, f in rows], pa.int64()),
                pa.array([1] * len(rows), pa.int64()),
            ],
            schema=schema,
        )

    def confirm(self, binding: pa.Table) -> None:
        for name in self._specs:
            files = _files_of(binding, name)
            self._known[name].add(files)
            for file in files:
                self._last_listed[name].pop(file.name, None)

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        wanted = {t.table.name: t for t in tables}
        staged: dict[GlobalId, list[StagedFile]] = {t.id: [] for t in wanted.values()}
        for name, spec in self._specs.items():
            files = _files_of(binding, name)
            table, dead = wanted.get(name), wanted.get(name + DEAD_LETTER)
            if not files or (table is None and dead is None):
                continue
            rows = self._stage_table(spec, _stage_rows(spec, table, dead, time), files)
            if table is not None:
                staged[table.id] = rows.table
            if dead is not None:
                staged[dead.id] = rows.dead_letters
        return staged

    def is_static(self, table: IngestedTable) -> bool:
        return False

    def counters(self) -> Mapping[str, int]:
        return {
            "files": sum(len(known) for known in self._known.values()),
            "waiting_files": sum(1 for file in self._waiting.values() if file.reason),
            "changed_files": sum(self._changed.values()),
            "bad_files": self._list.in_error,
        }

    def files(self) -> tuple[SourceFile, ...]:
        return self._list.shown()

    def warning(self) -> str:
        noted = (file for file in self._waiting.values() if file.reason)
        texts = [f"{file.file}: {file.reason}" for file in islice(noted, 3)]
        changed = sum(self._changed.values())
        if changed:
            texts.append(f"{changed} file(s) changed after they were read; their rows stay as they were")
        return "; ".join(texts)

    def _settled(self, table: FilesTable) -> list[FileVersion]:
        """The files to bind now, oldest first, at most `max_files_per_tick`."""
        listing = list_files(table.path, table.pattern)
        for name in listing.outside_links:
            self._wait(table, name, 0, "not read, it is a link out of its directory")
        for name in listing.undecodable_names:
            self._wait(table, name, 0, "not read, its name is not UTF-8: rename it")
        new, self._changed[table.name] = self._known[table.name].split(listing.files)
        before = self._last_listed[table.name]
        self._last_listed[table.name] = {f.name: f for f in new}
        settled: list[FileVersion] = []
        for file in sorted(new, key=lambda f: (f.modified_ns, f.name)):
            if before.get(file.name) != file:
                self._wait(table, file.name, file.size)  # new, or still growing: checked again at the next tick
            elif len(settled) == table.max_files_per_tick:
                self._wait(table, file.name, file.size)
            elif is_complete(os.path.join(table.path, file.name), table.format):
                settled.append(file)
            else:
                end = "has no parquet footer" if table.format == "parquet" else "does not end with a newline"
                self._wait(table, file.name, file.size, f"waiting, it {end} (half written?)")
        return settled

    def _wait(self, table: FilesTable, name: str, size: int, reason: str = "") -> None:
        """The file is not bound yet. Files without a reason are kept as long as they would be shown."""
        if reason or len(self._waiting) < LISTED_FILES:
            self._waiting[(table.name, name)] = SourceFile(table.name, name, size, PENDING, reason)

    def _stage_table(self, spec: FilesTable, function: StageRows, files: list[FileVersion]) -> StagedRows:
        """Reads until the files did not change during the job. A file that cannot be read as a whole gives an error
        row, or a dead letter."""
        bad: dict[str, str] = {}
        for _ in range(_READS_MAX):
            for file in files:
                if file.name not in bad and (code := checks.file_problem(spec, function.columns, file)):
                    bad[file.name] = code
            paths = [os.path.join(spec.path, f.name) for f in files if f.name not in bad and f.size]
            rows = stage(self._session, spec, function, paths) if paths else StagedRows()
            moved = {f.name: code for f in files if f.name not in bad and (code := checks.has_changed(spec, f))}
            if not moved:
                refused = stage_refused(function, bad)
                self._record(spec, function, files, rows, bad)
                return StagedRows(rows.table + refused.table, rows.dead_letters + refused.dead_letters, rows.counts)
            bad |= moved
        raise SourceUnusable(
            f"table {spec.name}: files change while they are read; write them elsewhere and move them in when complete"
        )

    def _record(
        self, spec: FilesTable, function: StageRows, files: list[FileVersion], rows: StagedRows, bad: Mapping[str, str]
    ) -> None:
        """Puts the files into the list, with what became of them."""
        for file in files:
            good, malformed = rows.counts.get(file.name, (0, 0))
            problem = None
            if code := bad.get(file.name):
                problem = Problem(code, 1, in_error=not function.writes_letters)
            elif malformed:
                problem = Problem(MALFORMED, malformed, in_error=not function.set_aside)
            self._list.add(spec.name, file, function.time, good, problem)

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


def _stage_rows(spec: FilesTable, table: IngestedTable | None, dead: IngestedTable | None, time: Time) -> StageRows:
    if spec.columns is None:
        raise SourceUnusable(f"table {spec.name}: its schema is neither given nor inferred yet")
    location, dead_letter = (t.shard.location if t is not None else None for t in (table, dead))
    return StageRows(spec.columns, time, location, dead_letter, set_aside=spec.on_bad_record == "deadLetter")


def _files_of(binding: pa.Table, table: str) -> list[FileVersion]:
    rows = binding.filter(pc.equal(binding.column("table"), table))
    columns = (rows.column(name).to_pylist() for name in ("file", "size", "modified_ns"))
    return [FileVersion(*row) for row in zip(*columns, strict=True)]
