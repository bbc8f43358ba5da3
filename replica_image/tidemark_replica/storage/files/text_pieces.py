"""Reads text that Spark cannot open itself: a task streams the bytes, and Spark's own reader parses the lines.

    range(n), a partition for each piece ──mapInArrow(ReadLines)──► lines ──reader.csv / reader.json──► rows

So a record means what it means in a file that Spark opens. A piece is a whole file. A file whose archive or header is
bad gives some lines before that is known: the task reports the file, and the caller reads again without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.checks import header_names
from tidemark_replica.storage.files.compression import ArchiveUnreadable, chunks, compression_of
from tidemark_replica.storage.files.file_store import file_store
from tidemark_replica.storage.files.lines import NotText, lines
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.problem_report import ProblemReport

_LINE = pa.schema([("value", pa.string())])


@dataclass(frozen=True)
class ReadLines:
    """Runs in Spark's Python workers: the lines of the piece whose number a batch has. `names`: the columns' names,
    where each file begins with a header; the header is no line."""

    table: FilesTable
    files: tuple[FileVersion, ...]
    names: tuple[str, ...] | None
    report: ProblemReport

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for found in self._reported(self.files[number]):
                    yield pa.RecordBatch.from_arrays([found], schema=_LINE)

    def _reported(self, file: FileVersion) -> Iterator[pa.StringArray]:
        """The lines until there is a problem, which is reported."""
        try:
            yield from self._lines(file)
        except FileNotFoundError:
            self.report.add(file.name, "FILE_MISSING")
        except (ArchiveUnreadable, NotText) as error:
            self.report.add(file.name, "FILE_UNREADABLE", str(error))

    def _lines(self, file: FileVersion) -> Iterator[pa.StringArray]:
        header = self.names
        with file_store(self.table).open(file) as source:
            for found in lines(chunks(source, compression_of(self.table, file.name), file.size)):
                if header is not None:
                    if header_names(found[0].as_py(), self.table) != header:
                        self.report.add(file.name, "SCHEMA_MISMATCH")
                        return
                    found, header = found.slice(1), None
                yield found


def read_pieces(
    session: SparkSession,
    reader: DataFrameReader,
    table: FilesTable,
    files: Sequence[FileVersion],
    names: tuple[str, ...] | None,
    report: ProblemReport,
) -> DataFrame:
    """The rows of the files as the reader parses them. Partition i of the frame has the rows of file i."""
    function = ReadLines(table, tuple(files), names, report)
    texts = session.range(0, len(files), 1, len(files)).mapInArrow(function, "value string")
    return reader.csv(texts) if table.format == "csv" else reader.json(texts)
