"""Reads Avro files: tasks decompress blocks and decode their records by column.

Each file has the schema of its writer. Fields go to columns by their names, as `storage/avro/table_columns.py` says.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from tidemark_protocol.types import Column
from tidemark_replica.storage.avro.block_records import RecordFinder
from tidemark_replica.storage.avro.container import Block, blocks_between, read_header
from tidemark_replica.storage.avro.resolution import BodyDecoder, Incompatible
from tidemark_replica.storage.avro.schema import SchemaRefused
from tidemark_replica.storage.avro.table_columns import reader_of
from tidemark_replica.storage.files.file_store import FileStore
from tidemark_replica.storage.files.streamed.pieces import FilePiece
from tidemark_replica.storage.files.streamed.problem_report import Mismatch
from tidemark_replica.values.arrow_types import arrow_schema

BATCH_ROWS = 65_536
GROUP_BYTES = 32 << 20
"""Blocks of so many bytes, or one, are read side by side."""
BLOCK_COST = 256
"""Bytes that a block takes besides its data: it may have none."""


def avro_rows(
    store: FileStore, columns: Sequence[Column], added: Collection[str], piece: FilePiece
) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
    """The rows of the piece's blocks, with NULL in columns of `added` that the file lacks, and malformed records in
    base64. Raises Mismatch, NotAvro, and what the store raises."""
    schema = arrow_schema(columns)
    with store.open(piece.file) as source:
        header = read_header(source)
        try:
            writer = header.writer()
            names = {field.name for field in writer.fields}
            lowered = {name.lower() for name in names}
            there = [c for c in columns if c.name in names or c.name not in added or c.name.lower() in lowered]
            decoder, find = BodyDecoder(writer, reader_of(writer, there)), RecordFinder(writer)
        except (SchemaRefused, Incompatible) as error:
            raise Mismatch(str(error)) from None
        place = {column.name: number for number, column in enumerate(there)}
        for blocks in groups_of(blocks_between(source, header, piece.start, piece.end, piece.file.size)):
            for bodies in find(blocks, BATCH_ROWS):
                begin = bodies.pos.copy()
                found, bad = decoder.decode(bodies)
                good = len(bodies) - len(bad)
                arrays = [
                    found[place[f.name]].cast(f.type) if f.name in place else pa.nulls(good, f.type) for f in schema
                ]
                records = [b64encode(bodies.data[begin[i] : bodies.end[i]].tobytes()).decode() for i in bad]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema), records


def groups_of(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Blocks of GROUP_BYTES, or one."""
    group: list[Block] = []
    size = 0
    for block in blocks:
        group.append(block)
        size += len(block.data) + BLOCK_COST
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
