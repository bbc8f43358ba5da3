"""Reads bound files into data files of a shard: one Spark job reads all of them, and its Python workers write.

    files ──Spark's reader, schema given, PERMISSIVE──► rows + the text of malformed records
          ──mapInArrow(StageRows)──► good rows   ──► staged file of the table
                                 └─► bad records ──► error rows of the table, or rows of its dead-letter table

A record is good or bad as a whole. Spark raises for no record; problems of whole files are found before (`checks.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tidemark_persist import DIFF, ERROR, TIME, StagedFile, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.error_text import error_text

CORRUPT = "__corrupt"
FILE = "__file"
DEAD_LETTER_COLUMNS = (Column("file", STRING, nullable=False), Column("record", STRING))
_DEAD_LETTER_SCHEMA = arrow_schema(DEAD_LETTER_COLUMNS)
_TABLE, _DEAD = "table", "dead_letter"
_GLOB = re.compile(r"[{}\[\]*?\\]")
_STAGED_SCHEMA = pa.schema([("kind", pa.string()), ("file", pa.string())])
_OPTIONS = {
    "csv": frozenset({"header", "delimiter", "quote", "escape", "nullValue", "dateFormat", "timestampFormat"}),
    "json": frozenset({"dateFormat", "timestampFormat"}),
    "parquet": frozenset[str](),
}


def check_options(table: FilesTable) -> None:
    """Raises SourceUnusable for an unknown format or option."""
    allowed = _OPTIONS.get(table.format)
    if allowed is None:
        raise SourceUnusable(f"table {table.name}: format {table.format!r} is none of csv, json, parquet")
    for option in table.options:
        if option.name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise SourceUnusable(f"table {table.name}: {table.format} has no option {option.name!r} (known: {known})")


def literal_path(path: str) -> str:
    """The path with Spark's pattern characters escaped: a file may have the name `[a]*.csv`."""
    return _GLOB.sub(r"\\\g<0>", path)


def read_files(session: SparkSession, table: FilesTable, columns: Sequence[Column], paths: Sequence[str]) -> DataFrame:
    """The files' rows as Spark reads them, with the name of each row's file."""
    ddl = ", ".join(f"`{c.name}` {c.type}" for c in columns)
    frame = session.read.format(table.format)
    paths = [literal_path(path) for path in paths]
    if table.format == "parquet":
        rows = frame.schema(ddl).load(paths)
        return rows.selectExpr("*", f"CAST(NULL AS STRING) AS `{CORRUPT}`", f"_metadata.file_name AS `{FILE}`")
    for option in table.options:
        frame = frame.option(option.name, option.value)
    frame = frame.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
    rows = frame.option("encoding", "UTF-8").schema(f"{ddl}, `{CORRUPT}` STRING").load(paths)
    return rows.selectExpr("*", f"_metadata.file_name AS `{FILE}`")


@dataclass(frozen=True)
class StageRows:
    """Runs in Spark's Python workers: batches of rows in, names of staged files out.

    `location` or `dead_letter` None: that shard has its rows already, or does not exist. Bad records become error rows
    of the table unless `set_aside`.
    """

    columns: tuple[Column, ...]
    time: Time
    location: str | None
    dead_letter: str | None
    set_aside: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad: list[pa.RecordBatch] = []
        rows = self._rows(batches, bad)
        found = []
        if self.location is None:
            for _ in rows:
                pass
        elif good := write_staged(self.location, rows, schema=arrow_schema(self.columns)):
            found.append((_TABLE, good.to_json()))
        if self.dead_letter is not None and (
            dead := write_staged(self.dead_letter, map(self._letters, bad), schema=_DEAD_LETTER_SCHEMA)
        ):
            found.append((_DEAD, dead.to_json()))
        yield pa.RecordBatch.from_pydict(
            {"kind": [kind for kind, _ in found], "file": [file for _, file in found]}, _STAGED_SCHEMA
        )

    def _rows(self, batches: Iterable[pa.RecordBatch], bad: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The table's rows. Bad records are error rows among them, or are added to `bad` for the dead-letter table."""
        for batch in batches:
            is_bad = pc.is_valid(batch.column(CORRUPT))
            yield self._stamped(batch.filter(pc.invert(is_bad)).select([c.name for c in self.columns]), None)
            broken = batch.filter(is_bad).select([FILE, CORRUPT])
            if broken.num_rows and self.set_aside:
                bad.append(broken)
            elif broken.num_rows:
                yield self._malformed(broken.column(FILE))

    def error_rows(self, texts: pa.Array, diffs: pa.Array | None = None) -> pa.RecordBatch:
        """Error rows: user columns NULL."""
        schema = arrow_schema(self.columns)
        rows = pa.RecordBatch.from_arrays([pa.nulls(len(texts), field.type) for field in schema], schema=schema)
        return self._stamped(rows, texts, diffs)

    def _malformed(self, files: pa.Array) -> pa.RecordBatch:
        """One error row per file, with the number of its bad records as diff."""
        counts = pc.value_counts(files)
        texts = [error_text("MALFORMED_RECORD", name) for name in counts.field("values").to_pylist()]
        return self.error_rows(pa.array(texts, pa.string()), counts.field("counts"))

    def _letters(self, broken: pa.RecordBatch) -> pa.RecordBatch:
        return self._stamped(pa.RecordBatch.from_arrays(broken.columns, schema=_DEAD_LETTER_SCHEMA), None)

    def _stamped(self, rows: pa.RecordBatch, errors: pa.Array | None, diffs: pa.Array | None = None) -> pa.RecordBatch:
        n = rows.num_rows
        rows = rows.append_column(TIME, pa.repeat(pa.scalar(int(self.time), pa.int64()), n))
        rows = rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), n) if diffs is None else diffs)
        return rows.append_column(ERROR, pa.nulls(n, pa.string()) if errors is None else errors)


def stage(
    session: SparkSession, table: FilesTable, function: StageRows, paths: Sequence[str]
) -> tuple[list[StagedFile], list[StagedFile]]:
    """Reads the files and stages their rows: (files of the table, files of its dead letters)."""
    rows = read_files(session, table, function.columns, paths)
    by_kind: dict[str, list[StagedFile]] = {_TABLE: [], _DEAD: []}
    for staged in rows.mapInArrow(function, "kind string, file string").collect():
        by_kind[staged.kind].append(StagedFile.from_json(staged.file))
    return by_kind[_TABLE], by_kind[_DEAD]


def stage_errors(function: StageRows, errors: Sequence[str]) -> list[StagedFile]:
    """Stages error rows of the table, one per text, for files that could not be read as a whole."""
    if function.location is None or not errors:
        return []
    file = write_staged(
        function.location, [function.error_rows(pa.array(errors))], schema=arrow_schema(function.columns)
    )
    return [] if file is None else [file]
