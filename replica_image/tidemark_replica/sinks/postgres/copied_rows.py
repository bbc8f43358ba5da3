r"""Rows as COPY ... (FORMAT csv) takes them: Arrow's CSV writer does nearly all.

strings are quoted, so that "" is not NULL, and \. is no end of the data
binary   \x00ff
arrays   {1,NULL,3}     {"a","b \" c",NULL}
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

BLOCK_ROWS = 65_536
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def copied_blocks(rows: pa.Table) -> Iterator[bytes]:
    """The rows, BLOCK_ROWS at a time."""
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    for start in range(0, rows.num_rows, BLOCK_ROWS):
        block = rows.slice(start, BLOCK_ROWS)
        columns = [_written(column.combine_chunks()) for column in block.columns]
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.table(columns, names=block.column_names), sink, options)
        yield sink.getvalue().to_pybytes()


def _written(values: pa.Array) -> pa.Array:
    """The values, as texts where Arrow's writer would not write what PostgreSQL reads."""
    if pa.types.is_binary(values.type):
        return _hex(values)
    if pa.types.is_list(values.type):
        return _lists(values)
    return values


def _hex(values: pa.Array) -> pa.Array:
    r"""Texts such as `\x00ff`."""
    values = pa.concat_arrays([values])  # a copy without an offset
    ends = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1].astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[: ends[-1] if len(ends) else 0]
    prefixed = ends * 2 + 2 * np.arange(len(ends))
    texts: np.ndarray = np.empty(prefixed[-1], np.uint8)
    head = prefixed[:-1]
    texts[head], texts[head + 1] = ord("\\"), ord("x")
    digit = np.ones(len(texts), bool)
    digit[head] = digit[head + 1] = False
    texts[digit] = _DIGITS[np.stack([data >> 4, data & 15], 1).reshape(-1)]
    offsets = pa.py_buffer(prefixed)
    return pa.Array.from_buffers(
        pa.large_string(), len(values), [values.buffers()[0], offsets, pa.py_buffer(texts)], values.null_count
    )


def _lists(lists: pa.ListArray) -> pa.Array:
    elements = lists.flatten()
    texts = elements.cast(pa.string())
    if pa.types.is_string(elements.type):
        escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
        texts = pc.binary_join_element_wise('"', escaped, '"', "")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pc.fill_null(texts, "NULL")), ",")
    braced = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pc.is_valid(lists), braced, pa.scalar(None, pa.string()))
