"""Doubles as exact integers: multiples of 2^-1074 in base 2^32, of which a value touches three neighbouring digits.

    1.5  =  mantissa * 2^exponent  =  ... | p2 | p1 | p0 | 0 | 0 ...      position: where p0 stands (0 to 63)

NaN and the infinities have no digits; they are counted. A sum is rounded once, when read, half to even: it is the
double nearest to the true sum, whatever the order of the rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark_replica.arrangement.numbers.digits import BITS, LOW, Digits, carry, negate_where
from tidemark_replica.arrangement.rows.updates import Ints

Doubles = NDArray[np.float64]

LEAST_EXPONENT = -1074
LEAST_PRODUCT_EXPONENT = -1156
"""The exponent of position 0 of products, so that products of numbers near 1 have digits near those of the numbers."""
_PRODUCT_OFFSET = np.int64((LEAST_PRODUCT_EXPONENT - 2 * LEAST_EXPONENT) // 32)
_MANTISSA, _EXPONENT = np.int64((1 << 52) - 1), np.int64(0x7FF)


@dataclass(frozen=True, slots=True)
class SplitDoubles:
    """Doubles in pieces: digit `position + i` of the value is `pieces[i]`; zero for NaN and infinities."""

    position: Ints
    pieces: tuple[Ints, ...]


def split(values: Doubles) -> SplitDoubles:
    """The exact pieces of finite values."""
    mantissa, shift, sign = _decompose(values)
    within = shift & np.int64(31)
    low, high = (mantissa & LOW) << within, (mantissa >> BITS) << within
    pieces = (low & LOW) * sign, ((low >> BITS) + (high & LOW)) * sign, (high >> BITS) * sign
    return SplitDoubles(shift >> np.int64(5), pieces)


def split_products(left: Doubles, right: Doubles) -> SplitDoubles:
    """The exact pieces of products of finite values; position 0 (there are lower) is at LEAST_PRODUCT_EXPONENT."""
    (a, shift_a, sign_a), (b, shift_b, sign_b) = _decompose(left), _decompose(right)
    (a_low, a_high), (b_low, b_high) = (a & LOW, a >> BITS), (b & LOW, b >> BITS)
    lowest = (a_low.view(np.uint64) * b_low.view(np.uint64)).view(np.int64)
    middle = a_low * b_high + a_high * b_low
    over = (lowest >> BITS) & LOW
    digits = carry([lowest & LOW, over + (middle & LOW), (middle >> BITS) + a_high * b_high], 4)
    shift = shift_a + shift_b
    moved = [d << (shift & np.int64(31)) for d in digits]
    pieces = [moved[0] & LOW, *((moved[i] >> BITS) + (moved[i + 1] & LOW) for i in range(3)), moved[3] >> BITS]
    return SplitDoubles((shift >> np.int64(5)) - _PRODUCT_OFFSET, tuple(p * (sign_a * sign_b) for p in pieces))


def _decompose(values: Doubles) -> tuple[Ints, Ints, Ints]:
    """(mantissa, shift, sign) of value = sign * mantissa * 2^(shift + LEAST_EXPONENT); no mantissa if not finite."""
    bits = values.view(np.int64)
    exponent = (bits >> np.int64(52)) & _EXPONENT
    mantissa = (bits & _MANTISSA) | ((exponent > 0).astype(np.int64) << np.int64(52))
    special = exponent == _EXPONENT
    mantissa[special] = 0
    shift = np.maximum(exponent, 1) - 1
    shift[special] = 0
    return mantissa, shift, (bits >> np.int64(63)) | np.int64(1)


def to_double(digits: Digits, exponent: int) -> Doubles:
    """The doubles nearest to numbers given by digits, not necessarily carried, the first of weight 2^exponent."""
    length = len(digits) + 2
    carried = carry(digits, length)
    negative = carried[-1] < 0
    size = np.stack([np.zeros_like(negative, np.int64)] * 2 + negate_where(negative, carried))
    top = size.shape[0] - 1 - np.argmax(size[::-1] != 0, axis=0)
    nonzero = size.any(axis=0)
    top = np.maximum(np.where(nonzero, top, 2), 2)
    column = np.arange(size.shape[1])
    first, second, third = (size[top - i, column].view(np.uint64) for i in range(3))
    below = np.logical_or.accumulate(size != 0, axis=0)[np.maximum(top - 3, 0), column] & (top >= 3)
    bits = np.frexp(np.maximum(first, 1).astype(np.float64))[1]
    shift = (32 - bits).astype(np.uint64)
    leading = (((first << np.uint64(32)) | second) << shift) | (third >> (np.uint64(32) - shift))
    lost = ((third << shift) & np.uint64(0xFFFFFFFF)) != 0
    leading |= (lost | below).astype(np.uint64)
    with np.errstate(over="ignore"):
        scale = (top - 2 - 1) * 32 + exponent - shift.astype(np.int64)
        result = np.ldexp(leading.astype(np.float64), scale.astype(np.int32))
    return np.asarray(np.where(negative, -result, result))


def with_specials(finite: Doubles, nans: Ints, plus: Ints, minus: Ints) -> Doubles:
    """The sums, given how many NaNs and infinities are among the values."""
    infinite = np.where(plus != 0, np.inf, np.where(minus != 0, -np.inf, finite))
    return np.asarray(np.where((nans != 0) | ((plus != 0) & (minus != 0)), np.nan, infinite))
