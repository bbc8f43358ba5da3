"""Directories of files as a source: a binding is a list of file versions.

    remap rows  (table, file, size, modified_ns)      one per file, never retracted

A file is bound once it is complete and two listings, a tick apart, saw the same version. Only the bound version is
read: a file that has changed by then gives an error row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tidemark_persist import DIFF, StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestedTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files import checks
from tidemark_replica.storage.files.listing import BoundFiles, FileVersion, is_complete, list_files
from tidemark_replica.storage.files.reading import StageRows, stage, stage_errors
from tidemark_replica.values.error_text import error_text

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
        self._waiting: dict[str, str] = {}
        self._changed: dict[str, int] = {}
        self._bad_files = 0

    def resume(self, bound: pa.Table, upper: Time) -> None:
        for name in self._specs:
            self._known[name] = BoundFiles()
            self._known[name].add(_files_of(bound, name))

    def discover(self, time: Time) -> pa.Table:
        rows: list[tuple[str, FileVersion]] = []
        self._waiting = {}
        for name, table in self._specs.items():
            rows += [(name, file) for file in self._settled(table)]
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
            good, letters = self._stage_table(spec, _stage_rows(spec, table, dead, time), files)
            if table is not None:
                staged[table.id] = good
            if dead is not None:
                staged[dead.id] = letters
        return staged

    def is_static(self, table: IngestedTable) -> bool:
        return False

    def counters(self) -> Mapping[str, int]:
        return {
            "files": sum(len(known) for known in self._known.values()),
            "waiting_files": len(self._waiting),
            "changed_files": sum(self._changed.values()),
            "bad_files": self._bad_files,
        }

    def warning(self) -> str:
        texts = [f"{name}: {why}" for name, why in list(self._waiting.items())[:3]]
        changed = sum(self._changed.values())
        if changed:
            texts.append(f"{changed} file(s) changed after they were read; their rows stay as they were")
        return "; ".join(texts)

    def _settled(self, table: FilesTable) -> list[FileVersion]:
        """The files to bind now, oldest first, at most `max_files_per_tick`."""
        listing = list_files(table.path, table.pattern)
        for name in listing.outside_links:
            self._waiting[name] = "not read, it is a link out of its directory"
        for name in listing.undecodable_names:
            self._waiting[name] = "not read, its name is not UTF-8: rename it"
        new, self._changed[table.name] = self._known[table.name].split(listing.files)
        before = self._last_listed[table.name]
        self._last_listed[table.name] = {f.name: f for f in new}
        settled: list[FileVersion] = []
        for file in sorted(new, key=lambda f: (f.modified_ns, f.name)):
            if len(settled) == table.max_files_per_tick:
                break
            if before.get(file.name) != file:
                continue  # new, or still growing: checked again at the next tick
            if is_complete(os.path.join(table.path, file.name), table.format):
                settled.append(file)
            else:
                end = "has no parquet footer" if table.format == "parquet" else "does not end with a newline"
                self._waiting[file.name] = f"waiting, it {end} (half written?)"
        return settled

    def _stage_table(
        self, spec: FilesTable, function: StageRows, files: list[FileVersion]
    ) -> tuple[list[StagedFile], list[StagedFile]]:
        """Reads until the files did not change during the job; changed files give an error row."""
        bad: dict[str, str] = {}
        for _ in range(_READS_MAX):
            for file in files:
                if file.name not in bad and (code := checks.file_problem(spec, function.columns, file)):
                    bad[file.name] = code
            paths = [os.path.join(spec.path, f.name) for f in files if f.name not in bad and f.size]
            good, letters = stage(self._session, spec, function, paths) if paths else ([], [])
            moved = {f.name: code for f in files if f.name not in bad and (code := checks.has_changed(spec, f))}
            if not moved:
                self._bad_files += len(bad)
                return good + stage_errors(function, [error_text(c, n) for n, c in sorted(bad.items())]), letters
            bad |= moved
        raise SourceUnusable(
            f"table {spec.name}: files change while they are read; write them elsewhere and move them in when complete"
        )


def _stage_rows(spec: FilesTable, table: IngestedTable | None, dead: IngestedTable | None, time: Time) -> StageRows:
    if spec.columns is None:
        raise SourceUnusable(f"table {spec.name}: its schema is neither given nor inferred yet")
    location, dead_letter = (t.shard.location if t is not None else None for t in (table, dead))
    return StageRows(spec.columns, time, location, dead_letter, set_aside=spec.on_bad_record == "deadLetter")


def _files_of(binding: pa.Table, table: str) -> list[FileVersion]:
    rows = binding.filter(pc.equal(binding.column("table"), table))
    columns = (rows.column(name).to_pylist() for name in ("file", "size", "modified_ns"))
    return [FileVersion(*row) for row in zip(*columns, strict=True)]
