"""Avro container files by fastavro, and what of them ours reads."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from tests.avro.samples import plain
from tidemark_replica.storage.avro.block_records import RecordFinder
from tidemark_replica.storage.avro.container import blocks_between, read_header
from tidemark_replica.storage.avro.resolution import BodyDecoder
from tidemark_replica.storage.avro.schema import AvroType

MARKER = bytes(range(100, 116))


def container(schema: Any, values: list[Any], codec: str = "null", block_bytes: int = 16_000) -> bytes:
    """The file. `values`: as what logical types annotate."""
    out = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(plain(schema))))
    # the schema of the header keeps logical types
    fastavro.writer(out, parsed, values, codec=codec, sync_interval=block_bytes, sync_marker=MARKER)
    return with_header(out.getvalue(), schema, codec)


def with_header(file: bytes, schema: Any, codec: str) -> bytes:
    """The blocks of a file behind a header with the schema as it is given."""
    entries = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    head = io.BytesIO()
    meta = fastavro.parse_schema({"type": "map", "values": "bytes"})
    fastavro.schemaless_writer(head, meta, entries)
    return b"Obj\x01" + head.getvalue() + file[file.index(MARKER) :]


def peers_rows(file: bytes) -> list[Any]:
    """The records by fastavro, as what logical types annotate. Raises ValueError."""
    source = io.BytesIO(file)
    try:
        header = fastavro.reader(source)
        stripped = with_header(file, plain(header.writer_schema), header.codec)
        return list(fastavro.reader(io.BytesIO(stripped)))
    except Exception as error:
        raise ValueError(str(error)) from None


def read_pieces(
    file: bytes, piece_bytes: int = 1 << 62, reader: AvroType | None = None, batch: int = 1000
) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file that is read in pieces, and the number of malformed records. Raises NotAvro. `reader`: the
    reader's schema."""
    source = io.BytesIO(file)
    header = read_header(source)
    writer = header.writer()
    decoder = BodyDecoder(writer, reader or writer)
    find, rows, malformed = RecordFinder(writer), list[dict[str, Any]](), 0
    for start in range(0, len(file), piece_bytes):
        blocks = list(blocks_between(source, header, start, min(start + piece_bytes, len(file)), len(file)))
        for bodies in find(blocks, batch):
            columns, bad = decoder.decode(bodies)
            assert all(len(column) == len(bodies) - len(bad) for column in columns)
            malformed += len(bad)
            values = zip(*(column.to_pylist() for column in columns), strict=True)
            rows += [dict(zip(decoder.schema.names, row, strict=True)) for row in values]
    return rows, malformed
