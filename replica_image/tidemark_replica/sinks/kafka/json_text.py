"""Columns as JSON texts, column by column: no value becomes a Python object.

    boolean, integers                    JSON booleans and numbers
    float, double                        numbers; NaN and the infinities as the texts NaN, Infinity, -Infinity
    decimal                              texts with all digits of the scale, as JSON numbers are floats to many readers
    string                               texts
    binary                               texts in base64
    date, timestamp, timestamp_ntz       texts of ISO 8601, of years 1 to 9999; a timestamp ends with Z
    array, struct                        arrays and objects

Equal values have equal texts, so a text of a key is as good a key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.stop import VALUE_NOT_SUPPORTED
from tidemark_replica.values.calendar import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US

TEXT = pa.large_string()
_NULL = pa.scalar("null", TEXT)
_QUOTE = pa.scalar('"', TEXT)
_NOTHING = pa.scalar("", TEXT)
_CONTROL = {chr(code): json.dumps(chr(code))[1:-1] for code in range(32)}
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


class YearUnfit(Exception):
    """A date or a timestamp has a year that is not of 1 to 9999: ISO 8601 has no plain text for it."""


def objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """One JSON object for each row. There is one column at least. Raises DestinationStopped, which names the column,
    for a value without a text."""
    return _object(names, [_column(name, column) for name, column in zip(names, columns, strict=True)])


def _column(name: str, column: pa.Array) -> pa.Array:
    try:
        return texts(column)
    except YearUnfit:
        raise DestinationStopped(
            VALUE_NOT_SUPPORTED,
            f"column {name} has a date or timestamp beyond the years 1 to 9999, which has no text of ISO 8601: let the"
            " SQL cast it to STRING or replace it, and give the sink another topic",
        ) from None


def _object(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """`columns`: JSON texts."""
    pieces: list[pa.Array | pa.Scalar] = []
    for position, (name, column) in enumerate(zip(names, columns, strict=True)):
        begin = "{" if position == 0 else ","
        pieces += [pa.scalar(f"{begin}{json.dumps(name, ensure_ascii=False)}:", TEXT), column]
    return _joined(*pieces, pa.scalar("}", TEXT))


def texts(values: pa.Array) -> pa.Array:
    """The JSON text of each value, `null` for NULL; large_string. Raises YearUnfit."""
    if values.null_count == len(values):
        return pa.repeat(_NULL, len(values))
    return pc.if_else(values.is_valid(), pc.fill_null(_texts(values), _NOTHING), _NULL)


def _texts(values: pa.Array) -> pa.Array:
    """The JSON text of each value; any text for NULL."""
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(TEXT)
    if pa.types.is_floating(kind):
        return _floats(values)
    if pa.types.is_decimal(kind):
        return _quoted(_decimals(values))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(values.cast(TEXT)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _quoted(_base64(values))
    if pa.types.is_date(kind):
        _check_years(values.cast(pa.int32()), FIRST_DAY, LAST_DAY)
        return _quoted(values.cast(TEXT))
    if pa.types.is_timestamp(kind):
        return _quoted(_timestamps(values))
    if pa.types.is_struct(kind):
        fields = [values.type.field(index).name for index in range(kind.num_fields)]
        return _object(fields, [texts(field) for field in values.flatten()])
    return _arrays(values)


def _joined(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, _NOTHING)


def _quoted(inner: pa.Array) -> pa.Array:
    return _joined(_QUOTE, inner, _QUOTE)


def _escaped(values: pa.Array) -> pa.Array:
    found = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(found, "[\\x00-\\x1f]")).as_py():
        for character, escape in _CONTROL.items():
            found = pc.replace_substring(found, character, escape)
    return found


def _floats(values: pa.Array) -> pa.Array:
    found = values.cast(TEXT)
    special = pc.and_kleene(values.is_valid(), pc.invert(pc.is_finite(values)))
    if not pc.any(special).as_py():
        return found
    named = pc.if_else(pc.is_nan(values), '"NaN"', pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(special, named.cast(TEXT), found)


def _decimals(values: pa.Array) -> pa.Array:
    """Plain digits: Arrow writes small decimals with an exponent."""
    scale = values.type.scale
    wide = values.cast(pa.decimal128(38, scale))
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(wide), wide.buffers(), offset=wide.offset).cast(TEXT)
    if not scale:
        return unscaled
    digits = pc.utf8_lpad(pc.replace_substring(unscaled, "-", "", max_replacements=1), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(unscaled, "-"), pa.scalar("-", TEXT), _NOTHING)
    whole, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return _joined(sign, whole, pa.scalar(".", TEXT), fraction)


def _timestamps(values: pa.Array) -> pa.Array:
    """The texts of timestamps; those without a zone are in UTC."""
    microseconds = values.cast(pa.int64())
    _check_years(microseconds, FIRST_US, LAST_US)
    plain = pc.replace_substring(microseconds.cast(pa.timestamp("us")).cast(TEXT), " ", "T")
    return _joined(plain, pa.scalar("Z", TEXT)) if values.type.tz else plain


def _check_years(values: pa.Array, first: int, last: int) -> None:
    found = pc.min_max(values).as_py()
    if found["min"] is not None and not first <= found["min"] <= found["max"] <= last:
        raise YearUnfit


def _arrays(values: pa.Array) -> pa.Array:
    counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))
    elements = pa.LargeListArray.from_arrays(offsets, texts(values.flatten()))
    return _joined(pa.scalar("[", TEXT), pc.binary_join(elements, pa.scalar(",", TEXT)), pa.scalar("]", TEXT))


def _base64(values: pa.Array) -> pa.Array:
    """Each value is filled up with zeros to a multiple of three bytes; four letters stand for three of them."""
    binary = pc.fill_null(values.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    groups = -(-lengths // 3)
    begins = np.concatenate([[0], np.cumsum(groups)])
    padded = np.zeros(int(begins[-1]) * 3, np.uint8)
    shift = np.repeat(begins[:-1] * 3 - (offsets[:-1] - offsets[0]), lengths)
    padded[np.arange(len(data)) + shift] = data
    three = padded.reshape(-1, 3).astype(np.uint32)
    bits = three[:, 0] << 16 | three[:, 1] << 8 | three[:, 2]
    letters = _ALPHABET[np.stack([bits >> 18, bits >> 12 & 63, bits >> 6 & 63, bits & 63], axis=1)].copy()
    ends = begins[1:][lengths > 0] - 1
    missing = (groups * 3 - lengths)[lengths > 0]
    letters[ends[missing >= 1], 3] = ord("=")
    letters[ends[missing == 2], 2] = ord("=")
    buffers = [None, pa.py_buffer((begins * 4).astype(np.int64).tobytes()), pa.py_buffer(letters.tobytes())]
    return pa.Array.from_buffers(TEXT, len(binary), buffers)
