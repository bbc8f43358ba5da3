"""Reads bound files into data files of a shard: a Spark job reads all of them, and its Python workers write.

    files ──Spark's reader, schema given, PERMISSIVE──► rows + the text of malformed records    (text_pieces.py: its
                                                        parser over lines, where Spark cannot open the file)
          ──mapInArrow(StageRows)──► good rows   ──► staged file of the table
                                 ├─► bad records ──► error rows of the table, or rows of its dead-letter table
                                 └─► how many of each there are, by file

A record is good or bad as a whole. Spark raises for no record; problems of whole files are found before (`checks.py`),
or are reported by the job (`problem_report.py`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from tidemark_persist import StagedFile, remove_staged, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import MALFORMED_RECORD, FilesTable
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.files.checks import first_line, header_fits, header_of, opened_by_spark
from tidemark_replica.storage.files.file_store import FileStore
from tidemark_replica.storage.files.folder import Folder
from tidemark_replica.storage.files.listing import FileChanged, FileVersion
from tidemark_replica.storage.files.problems import END_OF_LINE, SCHEMA_MISMATCH
from tidemark_replica.storage.files.streamed.avro_pieces import avro_rows
from tidemark_replica.storage.files.streamed.compression import ArchiveUnreadable
from tidemark_replica.storage.files.streamed.lines import NotText
from tidemark_replica.storage.files.streamed.parquet_pieces import parquet_rows
from tidemark_replica.storage.files.streamed.pieces import FilePiece, pieces_of
from tidemark_replica.storage.files.streamed.problem_report import ProblemReport
from tidemark_replica.storage.files.streamed.text_pieces import ReadLines, numbers, read_pieces
from tidemark_replica.storage.update_rows import error_rows, stamped
from tidemark_replica.values.arrow_types import arrow_schema
from tidemark_replica.values.error_text import error_text

CORRUPT = "__corrupt"
FILE = "__file"
DEAD_LETTER_COLUMNS = (Column("file", STRING, nullable=False), Column("record", STRING))
_DEAD_LETTER_SCHEMA = arrow_schema(DEAD_LETTER_COLUMNS)
_TABLE, _DEAD, _COUNTS = "table", "dead_letter", "counts"
_GLOB = re.compile(r"[{}\[\]*?\\]")
Header = tuple[str, ...] | None
"""The names in the first line of a file; None where it has none."""
_STAGED_SCHEMA = pa.schema([("kind", pa.string()), ("file", pa.string())])


def literal_path(path: str) -> str:
    """The path with Spark's pattern characters escaped: a file may have the name `[a]*.csv`."""
    return _GLOB.sub(r"\\\g<0>", path)


def spark_reader(session: SparkSession, table: FilesTable) -> DataFrameReader:
    """Spark's reader of csv or json with the options that the spec gives."""
    reader = session.read.format("csv" if table.format == "csv" else "json")
    for option in table.options:
        reader = reader.option(option.name, option.value)
    return reader


def text_reader(session: SparkSession, table: FilesTable) -> DataFrameReader:
    """Spark's reader with the table's options."""
    reader = spark_reader(session, table)
    # a record is judged by all of its fields, also by those that nobody takes
    reader = reader.option("columnPruning", "false") if table.format == "csv" else reader
    return reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT).option("encoding", "UTF-8")


def _text_ddl(columns: Sequence[Column], header: Header) -> str:
    """The schema of the records of files with this header. A field of no column is a text, so that it fits."""
    types = {c.name: c.type for c in columns}
    names = [c.name for c in columns] if header is None else header
    fields = [f"`{n}` {types[n]}" if n in types else f"`__field{place}` STRING" for place, n in enumerate(names)]
    return ", ".join([*fields, f"`{CORRUPT}` STRING"])


def _selected(columns: Sequence[Column], header: Header) -> list[str]:
    """The columns, with NULL where the files do not have them."""
    is_there = {c.name for c in columns} if header is None else set(header)
    return [f"`{c.name}`" if c.name in is_there else f"CAST(NULL AS {c.type}) AS `{c.name}`" for c in columns]


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"`{c.name}` {c.type}" for c in columns)


@dataclass(frozen=True)
class StageRows:
    """Runs in Spark's Python workers: batches of rows in, names of staged files out.

    `location` or `dead_letter` None: that shard has its rows already, or does not exist. Bad records become error rows
    of the table unless `set_aside`. `retracts`: the good rows have the diff -1. `numbered`: the names of the pieces'
    files, where the rows have the number of their piece.
    """

    columns: tuple[Column, ...]
    time: Time
    location: str | None
    dead_letter: str | None
    set_aside: bool
    retracts: bool = False
    numbered: tuple[str, ...] | None = None

    def retracting(self) -> StageRows:
        """Stages retractions of the good rows, and nothing of bad records."""
        return replace(self, dead_letter=None, retracts=True)

    @property
    def writes_letters(self) -> bool:
        """Whether bad records, and files that cannot be read, become rows of the dead-letter table."""
        return self.set_aside and self.dead_letter is not None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad: list[pa.RecordBatch] = []
        counts: dict[str, list[int]] = {}
        rows = self._rows(batches, bad, counts)
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
        found.append((_COUNTS, json.dumps(counts)))
        yield pa.RecordBatch.from_pydict(
            {"kind": [kind for kind, _ in found], "file": [file for _, file in found]}, _STAGED_SCHEMA
        )

    def _rows(
        self, batches: Iterable[pa.RecordBatch], bad: list[pa.RecordBatch], counts: dict[str, list[int]]
    ) -> Iterator[pa.RecordBatch]:
        """The table's rows. Bad records are error rows among them, or are added to `bad` for the dead-letter table.
        `counts` gets the number of good and bad records of each file."""
        for batch in map(self._with_plain_names, batches):
            is_bad = pc.is_valid(batch.column(CORRUPT))
            good = batch.filter(pc.invert(is_bad))
            _count(good, counts, 0)
            rows = good.select([c.name for c in self.columns])
            if self.retracts:
                yield self.stamped(rows, diffs=pa.repeat(pa.scalar(-1, pa.int64()), rows.num_rows))
                continue
            yield self.stamped(rows)
            broken = batch.filter(is_bad).select([FILE, CORRUPT])
            _count(broken, counts, 1)
            if broken.num_rows and self.set_aside:
                bad.append(broken)
            elif broken.num_rows:
                yield self._malformed(broken.column(FILE))

    def _with_plain_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the names of files as the directory has them: Spark escapes them as in a URL."""
        names = batch.column(FILE).dictionary_encode()
        plain = [unquote(n) if self.numbered is None else self.numbered[n] for n in names.dictionary.to_pylist()]
        column = pa.array(plain, pa.string()).take(names.indices)
        return batch.set_column(batch.schema.get_field_index(FILE), FILE, column)

    def error_rows(self, texts: pa.Array, diffs: pa.Array | None = None) -> pa.RecordBatch:
        """Error rows: user columns NULL."""
        return error_rows(arrow_schema(self.columns), self.time, texts, diffs)

    def _malformed(self, files: pa.Array) -> pa.RecordBatch:
        """One error row per file, with the number of its bad records as diff."""
        counts = pc.value_counts(files)
        texts = [error_text(MALFORMED_RECORD, name) for name in counts.field("values").to_pylist()]
        return self.error_rows(pa.array(texts, pa.string()), counts.field("counts"))

    def _letters(self, broken: pa.RecordBatch) -> pa.RecordBatch:
        return self.stamped(pa.RecordBatch.from_arrays(broken.columns, schema=_DEAD_LETTER_SCHEMA))

    def stamped(
        self, rows: pa.RecordBatch, errors: pa.Array | None = None, diffs: pa.Array | None = None
    ) -> pa.RecordBatch:
        """The rows with the time, with diffs (by default 1) and with errors (by default none)."""
        return stamped(rows, self.time, errors, diffs)


def _count(batch: pa.RecordBatch, counts: dict[str, list[int]], at: int) -> None:
    for each in pc.value_counts(batch.column(FILE)).to_pylist():
        counts.setdefault(each["values"], [0, 0])[at] += each["counts"]


@dataclass(frozen=True)
class StagedRows:
    """The rows that jobs staged. `counts`: the numbers of good and bad records, by the name of the file. `problems`:
    the codes of files that turned out to be unreadable; what is staged is of no use then, and is read again without
    them."""

    table: list[StagedFile] = field(default_factory=list)
    dead_letters: list[StagedFile] = field(default_factory=list)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, other: StagedRows) -> None:
        """Adds what another job staged."""
        self.table.extend(other.table)
        self.dead_letters.extend(other.dead_letters)
        self.problems.update(other.problems)
        for name, (good, bad) in other.counts.items():
            before = self.counts.get(name, (0, 0))
            self.counts[name] = (before[0] + good, before[1] + bad)

    def remove(self, function: StageRows) -> None:
        """Deletes the data files."""
        for location, files in ((function.location, self.table), (function.dead_letter, self.dead_letters)):
            if location is not None:
                remove_staged(location, files)


@dataclass(frozen=True)
class FileStaging:
    """Reads files of a table, and stages their rows by `function`."""

    session: SparkSession
    table: FilesTable
    store: FileStore
    function: StageRows

    def stage(self, files: Sequence[FileVersion]) -> StagedRows:
        """Empty files have no rows."""
        done, table = StagedRows(), self.table
        if opened := [f for f in files if opened_by_spark(table, f.name) and f.size]:
            for rows in self._opened_by_spark(opened):
                done.add(_run(self.function, rows))
        streamed = pieces_of(table, [f for f in files if not opened_by_spark(table, f.name)])
        if not streamed:
            return done
        if table.format in ("csv", "json"):
            self._stage_text(streamed, done)
            return done
        report = ProblemReport(self.session)
        records = StageRecords(table, self.store, streamed, self._numbered(streamed), report)
        done.add(_run(records, numbers(self.session, streamed)))
        done.problems.update(report.take())
        return done

    def _opened_by_spark(self, files: Sequence[FileVersion]) -> Iterator[DataFrame]:
        """The files' rows as Spark reads them, with the name of each row's file: a frame for each header that they
        have."""
        table, columns = self.table, self.function.columns
        folder, usual = Folder(table.path), header_of(table, columns)
        if table.format == "parquet":
            reader = self.session.read.schema(_ddl(columns))
            rows = reader.parquet(*(literal_path(folder.path_of(file.name)) for file in files))
            yield rows.selectExpr("*", f"CAST(NULL AS STRING) AS `{CORRUPT}`", f"_metadata.file_name AS `{FILE}`")
            return
        paths: dict[Header, list[str]] = {}
        for file in files:
            header = usual if usual is None else first_line(table, self.store, file)
            if header is not None and not header_fits(header, columns, table.added):
                header = usual  # it has changed
            paths.setdefault(header, []).append(literal_path(folder.path_of(file.name)))
        for header, of_header in paths.items():
            rows = text_reader(self.session, table).schema(_text_ddl(columns, header)).load(of_header)
            yield rows.selectExpr(*_selected(columns, header), f"`{CORRUPT}`", f"_metadata.file_name AS `{FILE}`")

    def _parsed_by_spark(self, pieces: tuple[FilePiece, ...], header: Header, report: ProblemReport) -> DataFrame:
        """The rows of text that Spark's tasks stream, with the number of each row's piece. All files have the
        header."""
        columns = self.function.columns
        reader = text_reader(self.session, self.table).option("header", "false").schema(_text_ddl(columns, header))
        rows = read_pieces(self.session, reader, ReadLines(self.table, self.store, pieces, header, report))
        return rows.selectExpr(*_selected(columns, header), f"`{CORRUPT}`", f"spark_partition_id() AS `{FILE}`")

    def _numbered(self, pieces: Sequence[FilePiece]) -> StageRows:
        """The function for rows that have the numbers of these pieces."""
        return replace(self.function, numbered=tuple(piece.file.name for piece in pieces))

    def _stage_text(self, pieces: tuple[FilePiece, ...], done: StagedRows) -> None:
        """Streams text. Files have the header of the table until a task finds another one; then those are read by their
        own headers."""
        usual = header_of(self.table, self.function.columns)
        headers: dict[str, Header] = {}
        while pieces:
            of_header: dict[Header, list[FilePiece]] = {}
            for piece in pieces:
                of_header.setdefault(headers.get(piece.file.name, usual), []).append(piece)
            pieces = ()
            for header, some in of_header.items():
                report = ProblemReport(self.session)
                found = _run(self._numbered(some), self._parsed_by_spark(tuple(some), header, report))
                found.problems.update(report.take())
                mismatched = {p.file for p in some if found.problems.get(p.file.name) == SCHEMA_MISMATCH}
                unread = [f for f in mismatched if header is not None and f.name not in headers]
                if other := {f.name: own for f in unread if (own := self._own_header(f))}:
                    headers |= other
                    found.remove(self.function)
                    pieces += tuple(some)
                else:
                    done.add(found)

    def _own_header(self, file: FileVersion) -> Header:
        """The header of the file, if it can be read by that."""
        try:
            header = first_line(self.table, self.store, file)
        except (FileNotFoundError, FileChanged, ArchiveUnreadable, NotText, UnicodeDecodeError, csv.Error):
            return None
        return header if header_fits(header, self.function.columns, self.table.added) else None


@dataclass(frozen=True)
class StageRecords:
    """Runs in Spark's Python workers: stages the rows of the pieces of Parquet or Avro whose numbers a batch has. A
    file that cannot be decoded is reported."""

    table: FilesTable
    store: FileStore
    pieces: tuple[FilePiece, ...]
    stage: StageRows
    report: ProblemReport

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.stage(self._numbered(batches))

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with self.report.of(self.pieces[number].file.name):
                    for rows in self._rows(self.pieces[number]):
                        yield rows.append_column(FILE, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))

    def _rows(self, piece: FilePiece) -> Iterator[pa.RecordBatch]:
        """The rows, and the texts of malformed records, of which Parquet has none."""
        columns, added = self.stage.columns, self.table.added
        if self.table.format == "parquet":
            for rows in parquet_rows(self.store, columns, added, piece):
                yield rows.append_column(CORRUPT, pa.nulls(rows.num_rows, pa.string()))
            return
        for rows, malformed in avro_rows(self.store, columns, added, piece):
            yield rows.append_column(CORRUPT, pa.nulls(rows.num_rows, pa.string()))
            if malformed:
                nothing = [pa.nulls(len(malformed), field.type) for field in rows.schema]
                broken = pa.RecordBatch.from_arrays(nothing, schema=rows.schema)
                yield broken.append_column(CORRUPT, pa.array(malformed, pa.string()))


def _run(function: StageRows | StageRecords, rows: DataFrame) -> StagedRows:
    """Stages the rows."""
    done = StagedRows()
    for staged in rows.mapInArrow(function, "kind string, file string").collect():
        if staged.kind == _COUNTS:
            done.add(StagedRows(counts=json.loads(staged.file)))
        else:
            (done.table if staged.kind == _TABLE else done.dead_letters).append(StagedFile.from_json(staged.file))
    return done


def stage_refused(function: StageRows, codes: Mapping[str, str]) -> StagedRows:
    """Stages what stands for files that could not be read as a whole: an error row each, or a dead letter. `codes`: the
    reasons, by the name of the file."""
    if not codes:
        return StagedRows()
    texts = {name: error_text(code, name) for name, code in sorted(codes.items())}
    if function.writes_letters and function.dead_letter is not None:
        records = [text + END_OF_LINE for text in texts.values()]
        columns = [pa.array(list(column), pa.string()) for column in (texts, records)]
        letters = pa.RecordBatch.from_arrays(columns, schema=_DEAD_LETTER_SCHEMA)
        dead = write_staged(function.dead_letter, [function.stamped(letters)], schema=_DEAD_LETTER_SCHEMA)
        return StagedRows(dead_letters=[dead] if dead else [])
    if function.location is None:
        return StagedRows()
    rows = function.error_rows(pa.array(list(texts.values()), pa.string()))
    file = write_staged(function.location, [rows], schema=arrow_schema(function.columns))
    return StagedRows([file] if file else [])
