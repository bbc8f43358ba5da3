"""Values of PostgreSQL's binary format as texts that the ingester takes, a column at a time."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_pgwire.errors import INVALID_BINARY, NOT_IN_REPERTOIRE, OUT_OF_RANGE, PROTOCOL_VIOLATION
from tidemark_pgwire.values.binary import EPOCH_DAYS, EPOCH_US
from tidemark_pgwire.writes.tuples import TupleFields, unsigned
from tidemark_protocol.types import SqlType

DATETIME_OUT_OF_RANGE = "22008"
_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = (
    day.toordinal() - datetime.date(2000, 1, 1).toordinal() for day in (datetime.date.min, datetime.date.max)
)
_FIRST_US, _LAST_US = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
_GROUP_DIGITS, _GROUP = 4, 10_000
GROUPS_MAX = 10
"""Groups of four digits of a number, before the point and behind it: a column has 38 digits at most."""
_NEGATIVE, _SPECIAL = 0x4000, {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_HEAD_BYTES = 8
_SCALE_MAX = 0x3FFF


class BadValue(Exception):
    """A value is refused. `row`: its number among those given, from 0."""

    def __init__(self, row: int, sqlstate: str, text: str) -> None:
        super().__init__(text)
        self.row, self.sqlstate = row, sqlstate


def texts(block: bytes, data: pa.Array, fields: TupleFields, type: SqlType) -> pa.Array:
    """The texts of a column, NULL as null. `data`: the bytes of the block. Raises BadValue."""
    if type.name == "string":
        return _strings(block, fields)
    if type.is_decimal:
        return _numerics(data, fields, type.scale)
    width, convert = _FIXED[type.name]
    _require_size(fields, pa.scalar(width, pa.int64()))
    return convert(unsigned(data, fields.value_starts, width))


def _require(good: pa.Array, sqlstate: str, text: str) -> None:
    """`good`: null counts as good. Raises BadValue: the first row that is not."""
    if pc.all(good).as_py() is False:
        raise BadValue(pc.index(good, pa.scalar(False)).as_py(), sqlstate, text)


def _require_size(fields: TupleFields, wanted: pa.Array) -> None:
    """Raises BadValue where a value has other than so many bytes."""
    sizes = pc.if_else(pc.less(fields.sizes, 0), pa.scalar(None, pa.int64()), fields.sizes)
    wrong = pc.not_equal(sizes, wanted)
    if pc.any(wrong).as_py():
        at = pc.index(wrong, pa.scalar(True)).as_py()
        short = pc.less(sizes, wanted)[at].as_py()
        raise BadValue(at, *_SHORT if short else _LONG)


_SHORT = PROTOCOL_VIOLATION, "insufficient data left in message"
_LONG = INVALID_BINARY, "incorrect binary data format"


# --- texts ---


def _strings(block: bytes, fields: TupleFields) -> pa.Array:
    """The strings, as slices of the block: each second one of its parts, between which the other bytes are."""
    rows = len(fields.starts)
    if not rows:
        return pa.array([], pa.string())
    ends = pc.add(fields.starts, pc.max_element_wise(fields.sizes, 0))
    pairs = pc.bit_wise_or(fields.starts, pc.shift_left(ends, 32))  # two offsets of 32 bits in each
    parts = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pairs.buffers()[1], pa.py_buffer(block)])
    second = pa.arange(0, 2 * rows, 2)
    found = parts.take(pc.if_else(pc.less(fields.sizes, 0), pa.scalar(None, pa.int64()), second))
    try:
        strings = found.cast(pa.string())
    except pa.ArrowInvalid:
        text = 'invalid byte sequence for encoding "UTF8"'
        raise BadValue(_first_malformed(found), NOT_IN_REPERTOIRE, text) from None
    nul = pc.match_substring(strings, "\0")
    _require(pc.invert(nul), NOT_IN_REPERTOIRE, 'invalid byte sequence for encoding "UTF8": 0x00')
    return strings


def _first_malformed(found: pa.Array) -> int:
    """The first one that is no UTF-8; there is one."""
    low, high = 0, len(found)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            found[low:middle].cast(pa.string())
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


# --- values of one width ---


def _booleans(bits: pa.Array) -> pa.Array:
    return pc.if_else(pc.not_equal(bits, 0), "true", "false")


def _numbers(unsigned_type: pa.DataType, type: pa.DataType, bits: pa.Array) -> pa.Array:
    numbers = bits.cast(unsigned_type).view(type)
    if pa.types.is_floating(type):
        numbers = numbers.cast(pa.float64())  # its digits tell the smaller float exactly
    return numbers.cast(pa.string())


def _dates(bits: pa.Array) -> pa.Array:
    days = bits.cast(pa.uint32()).view(pa.int32())
    _require(_is_between(days, _FIRST_DAY, _LAST_DAY), DATETIME_OUT_OF_RANGE, "date out of range: years are 1 to 9999")
    return pc.add(days, pa.scalar(EPOCH_DAYS, pa.int32())).view(pa.date32()).cast(pa.string())


def _timestamps(bits: pa.Array) -> pa.Array:
    times = bits.view(pa.int64())
    text = "timestamp out of range: years are 1 to 9999"
    _require(_is_between(times, _FIRST_US, _LAST_US), DATETIME_OUT_OF_RANGE, text)
    return pc.add(times, EPOCH_US).view(pa.timestamp("us", "UTC")).cast(pa.string())


def _is_between(values: pa.Array, first: int, last: int) -> pa.Array:
    """Whether each value is in `[first, last]`."""
    return pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))


_FIXED: dict[str, tuple[int, Callable[[pa.Array], pa.Array]]] = {
    "boolean": (1, _booleans),
    "tinyint": (2, partial(_numbers, pa.uint16(), pa.int16())),
    "smallint": (2, partial(_numbers, pa.uint16(), pa.int16())),
    "int": (4, partial(_numbers, pa.uint32(), pa.int32())),
    "bigint": (8, partial(_numbers, pa.uint64(), pa.int64())),
    "float": (4, partial(_numbers, pa.uint32(), pa.float32())),
    "double": (8, partial(_numbers, pa.uint64(), pa.float64())),
    "date": (4, _dates),
    "timestamp": (8, _timestamps),
}


# --- numeric ---


def _numerics(data: pa.Array, fields: TupleFields, scale: int) -> pa.Array:
    """`scale`: of the column: as many digits are behind the point where the others are zeros."""
    small = pc.and_(pc.greater_equal(fields.sizes, 0), pc.less(fields.sizes, _HEAD_BYTES))
    _require(pc.invert(small), *_SHORT)
    count, weight, sign, digits = (_word(data, pc.add(fields.value_starts, at)) for at in (0, 2, 4, 6))
    weight = weight.cast(pa.uint16()).view(pa.int16()).cast(pa.int64())
    _require_size(fields, pc.add(pc.multiply(count, 2), _HEAD_BYTES))
    known = pa.array([0, _NEGATIVE, *_SPECIAL], pa.int64())
    _require(
        pc.or_(pc.is_in(sign, known), pc.is_null(sign)), INVALID_BINARY, 'invalid sign in external "numeric" value'
    )
    _require(pc.less_equal(digits, _SCALE_MAX), INVALID_BINARY, 'invalid scale in external "numeric" value')
    empty = pc.equal(count, 0)
    first = pc.if_else(empty, -1, weight)
    last = pc.if_else(empty, -1, pc.add(pc.subtract(weight, count), 1))
    _require(pc.less(first, GROUPS_MAX), OUT_OF_RANGE, "numeric field overflow")
    text = f"a numeric has more than {GROUPS_MAX * _GROUP_DIGITS} digits behind the point"
    _require(pc.greater_equal(last, -GROUPS_MAX), OUT_OF_RANGE, text)
    most, least = (pc.max(first).as_py() or 0), (pc.min(last).as_py() or 0)

    def group(exponent: int) -> pa.Array:
        """The groups of four digits that count so many powers of 10,000, as texts."""
        at = pc.subtract(weight, exponent)
        there = pc.and_(_is_between(at, 0, 1 << 16), pc.less(at, count))
        places = pc.add(pc.add(fields.starts, _HEAD_BYTES), pc.multiply(at, 2))
        found = _word(data, pc.if_else(there, places, pa.scalar(None, pa.int64()))).fill_null(0)
        _require(pc.less(found, _GROUP), INVALID_BINARY, 'invalid digit in external "numeric" value')
        if exponent < 0:
            _require_shown(found, pc.add(digits, (exponent + 1) * _GROUP_DIGITS))
        return pc.utf8_lpad(found.cast(pa.string()), _GROUP_DIGITS, "0")

    before = _joined([group(exponent) for exponent in range(max(most, 0), -1, -1)])
    before = pc.utf8_ltrim(before, "0")
    before = pc.if_else(pc.equal(before, ""), "0", before)
    minus = pc.if_else(pc.equal(sign, _NEGATIVE), "-", "")
    parts = [minus, before]
    if least < 0 or scale:
        behind = _joined([group(exponent) for exponent in range(-1, min(least, -1) - 1, -1)])
        parts += [pa.scalar("."), _of_scale(behind, scale)]
    found = _joined(parts)
    for bits, name in _SPECIAL.items():
        found = pc.if_else(pc.equal(sign, bits), name, found)
    return found


def _require_shown(group: pa.Array, shown: pa.Array) -> None:
    """PostgreSQL cuts digits behind those that it shows; here nothing is cut. `shown`: how many digits of the group and
    those behind it are."""
    left = pc.min_element_wise(pc.max_element_wise(shown, 0), _GROUP_DIGITS)
    unit = pa.array([10 ** (_GROUP_DIGITS - each) for each in range(_GROUP_DIGITS + 1)], pa.int64()).take(left)
    cut = pc.subtract(group, pc.multiply(pc.divide(group, unit), unit))
    _require(pc.equal(cut, 0), INVALID_BINARY, 'a digit of the external "numeric" value is behind its scale')


def _of_scale(behind: pa.Array, scale: int) -> pa.Array:
    """The value with so many digits, where the others are zeros; unchanged where not, which the ingester refuses."""
    trimmed = pc.utf8_rtrim(behind, "0")
    fits = pc.less_equal(pc.utf8_length(trimmed), scale)
    return pc.if_else(fits, pc.utf8_slice_codeunits(pc.utf8_rpad(behind, scale, "0"), 0, max(scale, 0)), trimmed)


def _joined(parts: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _word(data: pa.Array, places: pa.Array) -> pa.Array:
    return unsigned(data, places, 2).cast(pa.int64())
