"""Integers and decimals as digits in base 2^32, least significant first; only the last digit carries a sign.

5    = [5, 0]            -5 = [2^32 - 5, -1]          sum of both, digit by digit: [2^32, -1]
                                                      after `carry`:               [0, 0]
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import decimal_words
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints

Digits: TypeAlias = Sequence[Ints]

LOW = np.int64(0xFFFFFFFF)
BITS = np.int64(32)
_63 = np.int64(63)
_ONE_WORD_PRECISION = 18


def of_int64(values: Ints) -> list[Ints]:
    """The values as two digits."""
    return [values & LOW, values >> BITS]


def of_decimal(column: Array) -> list[Ints]:
    """The unscaled values: two digits up to 18 decimal digits, else four."""
    low, high = decimal_words(column)
    if column.type.precision <= _ONE_WORD_PRECISION:
        return of_int64(low)
    return [low & LOW, (low >> BITS) & LOW, high & LOW, high >> BITS]


def decimal_digits(precision: int) -> int:
    """The number of digits that `of_decimal` returns."""
    return 2 if precision <= _ONE_WORD_PRECISION else 4


def carry(digits: Digits, length: int) -> list[Ints]:
    """The same numbers with all digits but the last in [0, 2^32), in `length` digits."""
    zero = np.zeros_like(digits[0])
    over, result = zero, []
    for digit in [*digits, *[zero] * (length - len(digits))]:
        total = digit + over
        over = total >> BITS
        result.append(total & LOW)
    result[-1] = total
    return result


def negate_where(mask: Bools, digits: Digits) -> list[Ints]:
    """Carried digits of the numbers, negated where the mask says so."""
    return carry([np.where(mask, -d, d) for d in digits], len(digits))


def to_int64(carried: Digits) -> tuple[Ints, Bools]:
    """Three carried digits as (value, whether it fits)."""
    value = carried[0] | (carried[1] << BITS)
    return value, carried[2] == value >> _63


def to_decimal(carried: Digits, precision: int, scale: int, valid: Bools) -> tuple[Array, Bools]:
    """Five or more carried digits as decimals of a type, NULL where not `valid`, and whether they fit it."""
    low = carried[0] | (carried[1] << BITS)
    high = carried[2] | (carried[3] << BITS)
    sign = high >> _63
    fits = np.asarray(carried[-1] == sign)
    for digit in carried[4:-1]:
        fits &= digit == sign & LOW
    fits &= _below_power_of_ten(low.view(np.uint64), high, precision)
    shown = fits & valid
    words = np.where(shown, low, 0), np.where(shown, high, 0)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(np.column_stack(words))]
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(low), buffers), fits


def _below_power_of_ten(low: np.ndarray, high: Ints, precision: int) -> Bools:
    """Whether |value| < 10^precision, for 128-bit values given as two words."""
    negative = high < 0
    size_low = np.where(negative, ~low + np.uint64(1), low)
    size_high = np.where(negative, ~high + (low == 0), high).view(np.uint64)
    bound = 10**precision
    bound_low, bound_high = np.uint64(bound & (2**64 - 1)), np.uint64(bound >> 64)
    return np.asarray((size_high < bound_high) | ((size_high == bound_high) & (size_low < bound_low)))
