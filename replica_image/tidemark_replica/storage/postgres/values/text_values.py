"""PostgreSQL's texts of values as Arrow arrays, column by column.

    texts ['1.50', 'NaN', NULL]  as decimal(10,2) ──► [1.50, NULL, NULL]  and  unreadable [false, true, false]

A text is unreadable where the Arrow type has no such value: numeric NaN, infinite dates, years before 1 or after 9999,
arrays of several dimensions. The sessions that print the texts have the settings of `connection.SETTINGS`.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_DATE = r"^\d{4}-\d\d-\d\d$"
_TIMESTAMP = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"
_NUMBER = r"^-?\d+(\.\d+)?$"
_FLAT_ARRAY = r'^\{[^{}"\\]*\}$'
_ELEMENT = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^",]++)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)

Parsed = tuple[pa.Array, pa.Array | None]
"""The values, NULL where unreadable; and which texts are unreadable (None: none is)."""


def parse(texts: pa.Array, type: pa.DataType) -> Parsed:
    """The texts as values of the type."""
    if pa.types.is_string(type):
        return texts, None
    if pa.types.is_boolean(type):
        return pc.equal(texts, "t"), None
    if pa.types.is_binary(type):
        return _bytes(texts), None
    if pa.types.is_list(type):
        return _lists(texts, type)
    return _cast(texts, type)


def _cast(texts: pa.Array, type: pa.DataType) -> Parsed:
    try:
        return texts.cast(type), None
    except pa.ArrowInvalid:
        unreadable = pc.fill_null(pc.invert(pc.match_substring_regex(texts, _pattern(type))), False)
        if not pc.any(unreadable).as_py():
            raise
        return pc.if_else(unreadable, pa.scalar(None, pa.string()), texts).cast(type), unreadable


def _pattern(type: pa.DataType) -> str:
    """The pattern of the texts that are values of the type."""
    if pa.types.is_date(type):
        return _DATE
    if pa.types.is_timestamp(type):
        return _TIMESTAMP + (r"\+00$" if type.tz else "$")
    return _NUMBER


def _bytes(texts: pa.Array) -> pa.Array:
    r"""Texts such as `\x00ff`, two digits a byte."""
    texts = pa.concat_arrays([texts])  # a copy without an offset
    ends = _offsets(texts)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[: ends[-1]]
    filled = ends[:-1][np.diff(ends) > 0]
    digit = np.ones(len(data), bool)
    digit[filled] = digit[filled + 1] = False
    digits = _HEX[data[digit]]
    if (digits == 255).any():
        raise pa.ArrowInvalid("bytea that is not printed as hexadecimal digits")
    values = digits[0::2] << 4 | digits[1::2]
    lengths = np.maximum(np.diff(ends) - 2, 0) // 2
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    validity = texts.buffers()[0]
    return pa.Array.from_buffers(pa.binary(), len(texts), [validity, pa.py_buffer(offsets), pa.py_buffer(values)])


def _lists(texts: pa.Array, type: pa.DataType) -> Parsed:
    flat = pc.fill_null(pc.match_substring_regex(texts, _FLAT_ARRAY), True)
    split = _split_flat(texts) if pc.all(flat).as_py() else _split_quoted(texts)
    unreadable = pc.and_(pc.is_valid(texts), pc.is_null(split))
    values, wrong = parse(split.values, type.value_type)
    lists = pa.ListArray.from_arrays(split.offsets, values, type=type, mask=pc.is_null(split))
    if wrong is not None:
        rows = np.unique(split.value_parent_indices().filter(wrong).to_numpy(zero_copy_only=False))
        bad: npt.NDArray[np.bool_] = np.zeros(len(texts), bool)
        bad[rows] = True
        unreadable = pc.or_(unreadable, pa.array(bad))
        lists = pc.if_else(unreadable, pa.scalar(None, type), lists)
    return lists, unreadable if pc.any(unreadable).as_py() else None


def _split_flat(texts: pa.Array) -> pa.ListArray:
    """Arrays of one dimension without quotes, `{1,NULL,3}`, as lists of texts."""
    inner = pc.utf8_slice_codeunits(texts, 1, -1)
    split = pc.split_pattern(pc.fill_null(inner, ""), ",")
    offsets = split.offsets.to_numpy()
    empty = pc.equal(pc.fill_null(inner, ""), "").to_numpy(zero_copy_only=False)
    kept: npt.NDArray[np.bool_] = np.ones(len(split.values), bool)
    kept[offsets[:-1][empty]] = False
    elements = split.values.filter(pa.array(kept))
    elements = pc.if_else(pc.equal(elements, "NULL"), pa.scalar(None, pa.string()), elements)
    lengths = np.where(empty, 0, np.diff(offsets))
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), elements, mask=pc.is_null(texts))


def _split_quoted(texts: pa.Array) -> pa.ListArray:
    rows = [None if text is None else _elements(text) for text in texts.to_pylist()]
    return pa.array(rows, pa.list_(pa.string()))


def _elements(text: str) -> list[str | None] | None:
    """The elements of an array of one dimension, whose first index is 1; None for others."""
    if not text.startswith("{") or text.startswith("{{"):
        return None
    return [_element(quoted, plain) for quoted, plain in _ELEMENT.findall(text[1:-1])]


def _element(quoted: str, plain: str) -> str | None:
    """The element that has quotes, or has none; the other text is empty."""
    if plain:
        return None if plain == "NULL" else plain
    return _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted


def _offsets(texts: pa.Array) -> npt.NDArray[np.int64]:
    return np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1].astype(np.int64)
