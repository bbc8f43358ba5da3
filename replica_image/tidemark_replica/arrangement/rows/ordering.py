"""SQL's total order on whole columns, as words: integers that sort in the same order.

    column      words (most significant first)
    bigint      the value itself
    double      its bits, those of negative numbers turned round: -inf < ... < 0.0 < ... < inf < NaN
    decimal     one word up to 18 digits, else high and low half
    string      the rank among the distinct values at hand: by unsigned bytes
    array       likewise: element by element, of two where one begins the other the shorter one first
    struct      the words of its fields, one field after the other

NULL is a word before the others, where there are NULLs at all. Words compare values of one batch of columns with each
other; those of strings and arrays mean nothing beyond it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.arrangement.rows.columns import canonical, decimal_words, fixed, is_bytes, validity
from tidemark_replica.arrangement.rows.nested_columns import elements, fields, positions
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints

_63 = np.int64(63)
_WITHOUT_SIGN = np.int64(2**63 - 1)
_TOP_BIT = np.int64(-(2**63))
_ONE_WORD_PRECISION = 18


@dataclass(frozen=True)
class Order:
    """A column to order by; ascending and NULL first by default."""

    column: int
    descending: bool = False
    nulls_last: bool = False

    def words(self, columns: Sequence[Array]) -> list[Ints]:
        return sort_words(columns[self.column], descending=self.descending, nulls_last=self.nulls_last)


def sort_words(column: Array, *, descending: bool = False, nulls_last: bool = False) -> list[Ints]:
    """Words that order the values, for `order_rows`; NULLs come first by default."""
    words = _value_words(column)
    if descending:
        words = [~w for w in words]
    valid = validity(column)
    if valid is None:
        return words
    null = np.where(valid, 0, 1 if nulls_last else -1)
    return [null, *(np.where(valid, w, 0) for w in words)]


def order_rows(words: Sequence[Ints], rows: int) -> Ints:
    """A stable order by these words, the first being the most significant."""
    if not words:
        return np.arange(rows)
    return np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(list(reversed(words)))


def changes(words: Sequence[Ints], rows: int) -> Bools:
    """A mask of the ordered rows that differ from the row before; true for the first."""
    result = np.zeros(rows, np.bool_)
    result[:1] = True
    for word in words:
        result[1:] |= word[1:] != word[:-1]
    return result


def ranks(column: Array) -> Ints:
    """The rank of each value among the distinct ones, from 0; NULL is the least. Equal values have one rank."""
    words, rows = sort_words(column), len(column)
    order = order_rows(words, rows)
    result = np.empty(rows, np.int64)
    result[order] = np.cumsum(changes([w[order] for w in words], rows)) - 1
    return result


def _value_words(column: Array) -> list[Ints]:
    t = column.type
    if pa.types.is_list(t):
        return [_list_ranks(column)]
    if pa.types.is_struct(t):
        return [word for field in fields(column) for word in sort_words(field)]
    if is_bytes(t):
        return [np.asarray(pc.rank(column, tiebreaker="dense").to_numpy()).astype(np.int64)]
    if pa.types.is_decimal128(t):
        low, high = decimal_words(column)
        return [low] if t.precision <= _ONE_WORD_PRECISION else [high, low ^ _TOP_BIT]
    if pa.types.is_floating(t):
        with np.errstate(invalid="ignore"):  # a signalling NaN, perhaps under a NULL
            bits = fixed(canonical(column)).astype(np.float64).view(np.int64)
        return [bits ^ ((bits >> _63) & _WITHOUT_SIGN)]
    return [fixed(column).astype(np.int64)]


def _list_ranks(column: Array) -> Ints:
    """Ranks of lists: the ranks of their elements as four big-endian bytes each compare as bytes do."""
    starts, lengths, inside = elements(column)
    written = ranks(inside)[positions(starts, lengths)[1]].astype(">u4")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) * 4
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written)]
    keys = pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
    return np.asarray(pc.rank(keys, tiebreaker="dense").to_numpy()).astype(np.int64)
