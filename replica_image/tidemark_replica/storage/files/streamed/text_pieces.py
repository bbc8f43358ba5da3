"""Reads text that Spark cannot open itself, and each file that a schema is inferred from: a task streams the bytes, and
Spark's own reader parses the lines.

    range(n), a partition for each piece ──mapInArrow(ReadLines)──► lines ──reader.csv / reader.json──► rows

So a record means what it means in a file that Spark opens. A file whose archive or header is bad gives some
lines before that is known: the task reports the file, and the caller reads again without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.checks import header_names
from tidemark_replica.storage.files.file_store import FileStore
from tidemark_replica.storage.files.streamed.compression import NONE, compression_of, decompressed
from tidemark_replica.storage.files.streamed.lines import lines
from tidemark_replica.storage.files.streamed.pieces import FilePiece, text_of
from tidemark_replica.storage.files.streamed.problem_report import Mismatch, ProblemReport

_LINE = pa.schema([("value", pa.string())])


@dataclass(frozen=True)
class ReadLines:
    """Runs in Spark's Python workers: the lines of the piece whose number a batch has. `header`: the names in the first
    line of each file, which is no line of the table then."""

    table: FilesTable
    store: FileStore
    pieces: tuple[FilePiece, ...]
    header: tuple[str, ...] | None
    report: ProblemReport

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = self.pieces[number]
                with self.report.of(piece.file.name):
                    for found in self._lines(piece):
                        yield pa.RecordBatch.from_arrays([found], schema=_LINE)

    def _lines(self, piece: FilePiece) -> Iterator[pa.StringArray]:
        header = self.header if piece.start == 0 else None
        compression = compression_of(self.table, piece.file.name)
        with self.store.open(piece.file) as source:
            read = text_of(source, piece) if compression == NONE else decompressed(source, compression, piece.file.size)
            for found in lines(read, at_start=piece.start == 0):
                if header is not None:
                    if header_names(found[0].as_py(), self.table) != header:
                        raise Mismatch
                    found, header = found.slice(1), None
                yield _without_blank(found) if self.table.format == "csv" else found


def _without_blank(found: pa.StringArray) -> pa.StringArray:
    """The lines of csv that have more than spaces and control characters. Spark drops the other lines when it reads a
    file itself; of lines that it is given it drops those of spaces alone."""
    return found.filter(pc.match_substring_regex(found, pattern=r"[^\x00-\x20]"))


def read_pieces(session: SparkSession, reader: DataFrameReader, lines: ReadLines) -> DataFrame:
    """The rows of the lines as the reader parses them. Partition i of the frame has the rows of piece i."""
    texts = numbers(session, lines.pieces).mapInArrow(lines, "value string")
    return reader.csv(texts) if lines.table.format == "csv" else reader.json(texts)


def numbers(session: SparkSession, pieces: tuple[FilePiece, ...]) -> DataFrame:
    """The numbers of the pieces, each in a partition of its own."""
    return session.range(0, len(pieces), 1, len(pieces))
