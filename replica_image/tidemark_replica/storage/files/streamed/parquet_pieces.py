"""Reads Parquet files that Spark cannot open: tasks read row groups with Arrow.

Types are those of the table exactly (else SCHEMA_MISMATCH), so no value is converted. Dates of the hybrid calendar,
which Spark would rebase, are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_protocol.types import Column, TypeNotSupported
from tidemark_replica.storage.files.file_store import FileStore
from tidemark_replica.storage.files.streamed.pieces import FilePiece
from tidemark_replica.storage.files.streamed.problem_report import Mismatch
from tidemark_replica.values.arrow_types import arrow_schema, sql_type

BATCH_ROWS = 65_536
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def parquet_fits(schema: pa.Schema, columns: Sequence[Column], added: Collection[str]) -> bool:
    """Whether a file of this schema has each column once, with its type; those in `added` may be missing. None of them
    is there in other cases of letters alone: Spark would take it for the column."""
    lowered = {name.lower() for name in schema.names}
    if any(name not in schema.names and name.lower() in lowered for name in added):
        return False
    there = [c for c in columns if c.name not in added or c.name in schema.names]
    try:
        return all(schema.names.count(c.name) == 1 and sql_type(schema.field(c.name).type) == c.type for c in there)
    except TypeNotSupported:
        return False


def parquet_rows(
    store: FileStore, columns: Sequence[Column], added: Collection[str], piece: FilePiece
) -> Iterator[pa.RecordBatch]:
    """The rows of the piece's row groups, with NULL in columns of `added` that the file lacks. Raises Mismatch,
    ArrowException, and what the store raises."""
    schema = arrow_schema(columns)
    with (
        store.open(piece.file, sequential=False) as source,
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True) as file,
    ):
        if any(key in (file.schema_arrow.metadata or {}) for key in _LEGACY):
            raise pa.ArrowInvalid("it has dates of the hybrid calendar (Spark's LEGACY rebase mode)")
        if not parquet_fits(file.schema_arrow, columns, added):
            raise Mismatch
        groups = [
            g for g in range(file.num_row_groups) if piece.start <= _middle(file.metadata.row_group(g)) < piece.end
        ]
        there = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=there):
            arrays = [
                batch.column(f.name).cast(f.type) if f.name in there else pa.nulls(batch.num_rows, f.type)
                for f in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _middle(group: Any) -> int:
    """The place of the row group in the file: where its first column begins, and half of its size."""
    first = group.column(0)
    begin = first.dictionary_page_offset if first.dictionary_page_offset is not None else first.data_page_offset
    size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
    return int(begin + size // 2)
