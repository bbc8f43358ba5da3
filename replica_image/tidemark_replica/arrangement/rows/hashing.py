"""A 64-bit hash of whole rows, column by column.

Every column gives one 64-bit word per row: the bits of fixed-width values (widened, so that 1 hashes alike in
every integer width), of floats after `x + 0.0` and with one NaN, of decimals the low word and what the high word
holds beyond its sign. NULL has a word of its own. The words are multiplied by a number of their position's, so
(1, NULL) and (NULL, 1) differ, and added up; the sum is mixed once. (A collision costs time, never an answer.)

Strings are read as overlapping unaligned 8-byte words, one turn of a loop per word of the longest short string. Long
ones (over 256 bytes) go another way, whose cost follows their bytes alone: each word is mixed with its position and
the results are added up. The way of a string depends on that string only. Arrays do the same with the words of
their elements; structs are hashed as rows are.

The hash is that of this process's state: it is never written anywhere that outlives the replica.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import decimal_words, fixed, string_bytes, validity
from tidemark_replica.arrangement.rows.nested_columns import elements, fields, positions, segments
from tidemark_replica.arrangement.rows.updates import Array, Bools, Hashes, Ints

U = np.uint64
_GOLDEN, _MIX1, _MIX2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
_NULL = U(0x6E756C6C5F5F5F21)
_S27, _S30, _S31, _S32 = U(27), U(30), U(31), U(32)

_LONG, _MANY = 256, 1 << 12
_LONG_WORDS_AT_ONCE = 1 << 20
_TAIL_MASKS = np.array([(1 << (8 * i)) - 1 for i in range(9)], dtype=np.uint64)

ERRS_HASH = U(0)
"""The hash of errs rows, which sort before all others. No ok row has it."""


def hash_rows(columns: Sequence[Array], rows: int) -> Hashes:
    """The hash of every row over these columns; without columns all rows have one hash."""
    if rows > _MANY or len(columns) < 2:
        combined = np.full(rows, _GOLDEN, np.uint64)
        for position, column in enumerate(columns):
            combined += _spread(_words(column), position)
        return mix(combined)
    words = np.empty((len(columns), rows), np.uint64)  # for few rows the number of NumPy calls counts
    for position, column in enumerate(columns):
        words[position] = _words(column)
    words ^= words >> _S32
    words *= _factors(len(columns))
    return mix(np.add.reduce(words, axis=0) + _GOLDEN)


def key_hashes(columns: Sequence[Array], rows: int) -> Hashes:
    """The hashes of `hash_rows`, but never ERRS_HASH."""
    return np.maximum(hash_rows(columns, rows), U(1))


def hashes_with_errors(columns: Sequence[Array], ok: Bools | None, rows: int) -> Hashes:
    """Key hashes of updates; ERRS_HASH where `ok` is false (None: all rows are ok)."""
    hashes = key_hashes(columns, rows)
    return hashes if ok is None else np.where(ok, hashes, ERRS_HASH)


def _spread(words: Hashes, position: int) -> Hashes:
    """Words multiplied by the factor of a position: folded before, since a product moves bits upwards only."""
    folded = words >> _S32
    folded ^= words
    folded *= factor(position)
    return folded


@cache
def factor(position: int) -> np.uint64:
    """An odd number per position, unrelated to the others, so that small differences do not cancel."""
    return np.uint64(mix(np.array([position], np.uint64))[0] | U(1))


@cache
def _factors(positions: int) -> Hashes:
    return np.array([[factor(position)] for position in range(positions)], np.uint64)


def mix(x: Hashes) -> Hashes:
    """splitmix64: a bijection on 64 bits in which every input bit affects every output bit."""
    x = x + _GOLDEN
    x ^= x >> _S30
    x *= _MIX1
    x ^= x >> _S27
    x *= _MIX2
    x ^= x >> _S31
    return x


def _words(a: Array) -> Hashes:
    """One word per value."""
    valid = None if a.null_count == len(a) > 0 else validity(a)
    if valid is None:
        return np.full(len(a), _NULL) if a.null_count else _value_words(a)
    return np.where(valid, _value_words(a), _NULL)


def _value_words(a: Array) -> Hashes:
    return _WORDS.get(a.type.id, _integer_words)(a)


def _integer_words(a: Array) -> Hashes:
    return fixed(a).astype(np.int64).view(np.uint64)


def _float_words(a: Array) -> Hashes:
    with np.errstate(invalid="ignore"):  # a signalling NaN, perhaps under a NULL
        values = fixed(a).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _decimal_words(a: Array) -> Hashes:
    low, high = decimal_words(a)
    beyond_sign = (high ^ (low >> np.int64(63))).view(np.uint64)
    words = low.view(np.uint64)
    if beyond_sign.any():
        wide = np.flatnonzero(beyond_sign)
        words = words.copy()  # they may be the column's own
        words[wide] = mix(words[wide] ^ mix(beyond_sign[wide]))
    return words


def _struct_words(a: Array) -> Hashes:
    return mix(hash_rows(fields(a), len(a)))  # (NULL) is not NULL


def _bytes_words(a: Array) -> Hashes:
    starts, lengths, raw = string_bytes(a)
    words, longest = lengths.view(np.uint64) * _GOLDEN, int(lengths.max(initial=0))
    if longest == 0:
        return mix(words)
    starts, view = _overlapping_words(starts, lengths, raw)
    if longest <= 8:
        words += _spread(view[starts] & _TAIL_MASKS[lengths], 0)
        return mix(words)
    long = np.flatnonzero(lengths > _LONG)
    if len(long):
        words[long] += mix(_long_words(starts[long], lengths[long], view))
        lengths = np.where(lengths > _LONG, 0, lengths)
    shortest, longest = int(lengths.min()), int(lengths.max())
    for turn, position in enumerate(range(0, longest, 8)):
        if shortest >= position + 8:
            words += _spread(view[starts + position], turn)
            continue
        live = np.flatnonzero(lengths > position)
        masks = _TAIL_MASKS[np.minimum(lengths[live] - position, 8)]
        words[live] += _spread(view[starts[live] + position] & masks, turn)
    return mix(words)


def _list_words(a: Array) -> Hashes:
    """The elements' words, each mixed with its place in the list, added up."""
    starts, lengths, inside = elements(a)
    words = mix(lengths.view(np.uint64))
    filled = np.flatnonzero(lengths)
    if len(filled):
        within, places = positions(starts[filled], lengths[filled])
        salted = mix(_words(inside)[places] + mix(within.view(np.uint64)))
        words[filled] = mix(words[filled] ^ np.add.reduceat(salted, segments(lengths[filled])))
    return words


def _overlapping_words(starts: Ints, lengths: Ints, raw: Hashes | np.ndarray) -> tuple[Ints, Hashes]:
    """The bytes as one word per byte offset, padded so that the last word can be read whole."""
    first, end = int(starts[0]), int(starts[-1] + lengths[-1])
    if len(raw) < end + 8:
        raw = np.concatenate([raw[first:end], np.zeros(8, np.uint8)])
        starts = starts - first
    return starts, np.ndarray((len(raw) - 7,), np.dtype("<u8"), np.ascontiguousarray(raw), 0, (1,))


def _long_words(starts: Ints, lengths: Ints, view: Hashes) -> Hashes:
    result = np.zeros(len(starts), np.uint64)
    counts = (lengths + 7) // 8
    cuts = np.searchsorted(np.cumsum(counts), np.arange(_LONG_WORDS_AT_ONCE, int(counts.sum()), _LONG_WORDS_AT_ONCE))
    for rows in np.split(np.arange(len(starts)), np.unique(cuts)):
        if len(rows) == 0:
            continue
        begins = np.cumsum(counts[rows]) - counts[rows]
        position = np.arange(int(counts[rows].sum())) - np.repeat(begins, counts[rows])
        remaining = np.minimum(np.repeat(lengths[rows], counts[rows]) - 8 * position, 8)
        words = view[np.repeat(starts[rows], counts[rows]) + 8 * position] & _TAIL_MASKS[remaining]
        salted = mix(words + mix(position.astype(np.uint64)))
        result[rows] = np.add.reduceat(salted, begins)
    return result


_WORDS: dict[int, Callable[[Array], Hashes]] = {
    **dict.fromkeys((pa.float32().id, pa.float64().id), _float_words),
    **dict.fromkeys((pa.string().id, pa.binary().id), _bytes_words),
    pa.decimal128(1).id: _decimal_words,
    pa.list_(pa.null()).id: _list_words,
    pa.struct([]).id: _struct_words,
}
"""The function from values to words per type; other types are integers."""
