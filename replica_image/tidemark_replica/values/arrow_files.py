"""Files of Arrow's IPC format, written table by table and read batch by batch through a memory map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[Any]) -> int:
    """Writes tables or batches; returns the number of rows."""
    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for table in tables:
            writer.write(table)
            rows += table.num_rows
    return rows


def read_batches(path: Path, first: int = 0, end: int | None = None) -> Iterator[Any]:
    """Yield the batches of a file, or those in [first, end)."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        yield from map(reader.get_batch, range(first, reader.num_record_batches if end is None else end))
