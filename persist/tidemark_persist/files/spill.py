"""Divides more updates than fit in memory by a hash of the row, so that one share at a time can be consolidated.

Equal rows have equal hashes and are in the same share. All shares are on local disk as Arrow files, below the folder
that the process has set (`set_spill_folder`): spilled data may be as large as a table, and temporary folders are often
smaller.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist.schema import DIFF, TIME

_MIX = np.uint64(0x9E3779B97F4A7C15)
_WEIGHTS = np.cumprod(np.full(256, _MIX | np.uint64(1), dtype=np.uint64))  # one odd weight per byte position


_below: Path | None = None


def set_spill_folder(folder: Path | None) -> None:
    """Sets the folder of spilled data for the whole process. None: the system's temporary folder."""
    global _below
    _below = folder


def spill_folder() -> Path | None:
    """The folder that `set_spill_folder` has set; None: the system's temporary folder."""
    return _below


def divide(
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    shares: int,
    share_of: Callable[[pa.Table], np.ndarray] | None = None,
    folder: Path | None = None,
) -> Generator[Iterator[pa.Table], None, None]:
    """The updates in `shares` parts, equal rows (and times) in the same one, or by `share_of`, which gives each row's
    share. Files are below `folder`, by default the process's spill folder."""
    if shares <= 1:
        yield iter(tables)
        return
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-shares-", dir=folder or _below) as place,
        ExitStack() as open_files,
    ):
        paths = [Path(place) / f"{share}.arrow" for share in range(shares)]
        writers = [open_files.enter_context(pa.ipc.new_file(str(path), schema)) for path in paths]
        for table in tables:
            found = row_hash(table) % np.uint64(shares) if share_of is None else share_of(table)
            for share, rows in by_share(table, found):
                writers[share].write_table(rows)
        open_files.close()
        for path in paths:
            yield _read_back(path)
            path.unlink()


def by_share(table: pa.Table, found: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each share, in their order."""
    order = np.argsort(found, kind="stable")
    rows = table.take(pa.array(order))
    shares, starts = np.unique(found[order], return_index=True)
    ends = np.append(starts, len(order))[1:]
    for share, start, end in zip(shares, starts, ends, strict=True):
        yield int(share), rows.slice(int(start), int(end - start))


def _read_back(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for index in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(index)])


def row_hash(table: pa.Table) -> np.ndarray:
    """A 64-bit hash per row over its flat columns, without time and diff."""
    total = np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        column = table.column(name)
        if name in (TIME, DIFF) or pa.types.is_nested(column.type):
            continue
        with np.errstate(over="ignore"):
            total = (total ^ _column_hash(column)) * _MIX
            total ^= total >> np.uint64(29)
    return total


def _column_hash(column: pa.ChunkedArray) -> np.ndarray:
    """Hashes the bytes of each value; NULL counts as no bytes."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        array = _as_bytes(array)
    binary = pc.fill_null(array.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = binary.buffers()[2]
    if len(binary) == 0 or data is None:
        return np.zeros(len(binary), np.uint64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    used = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
    position = np.arange(len(used)) - np.repeat(starts - offsets[0], lengths)
    weighted = (used + np.uint64(1)) * _WEIGHTS[position % len(_WEIGHTS)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighted, dtype=np.uint64)])
    hashes: np.ndarray = sums[offsets[1:] - offsets[0]] - sums[starts - offsets[0]]
    return hashes


def _as_bytes(array: pa.Array) -> pa.Array:
    """Fixed-width values as their bytes."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    width = array.type.bit_width // 8
    values = array.buffers()[1].slice(array.offset * width, len(array) * width)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(array), [None, values])
    return pc.if_else(array.is_valid(), fixed, pa.scalar(None, pa.binary(width)))
