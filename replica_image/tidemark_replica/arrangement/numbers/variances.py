"""Variances and covariances from exact sums: (n * sum of products - product of the sums) / (n * divisor), rounded once.

The numerator is an exact integer, so nothing cancels that should not: the variance of equal values is 0, whatever their
size, and a value that went in and out again leaves no trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidemark_replica.arrangement.numbers import floats
from tidemark_replica.arrangement.numbers.averages import divide
from tidemark_replica.arrangement.numbers.digits import BITS, LOW, Digits, carry, negate_where
from tidemark_replica.arrangement.rows.updates import Bools, Ints

_EXTRA = 4
"""Digits behind the point: a quotient by less than 2^62 keeps 66 bits, of which a double shows 53."""
_DIGITS_AT_ONCE = 1 << 15
"""The number of digits that are multiplied by a digit each in one operation: 256 KB, which stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of doubles, or of their products, by digits from a position (of `floats.split`, `split_products`) on."""

    first: int
    digits: Digits


@dataclass(frozen=True, slots=True)
class _Signed:
    """Numbers as carried digits of their size, the first of weight 2^exponent."""

    negative: Bools
    size: list[Ints]
    exponent: int


def covariance(counts: Ints, divisors: Ints, x: Sums, y: Sums, products: Sums) -> floats.Doubles:
    """(n * products - x * y) / (n * divisor); of x with itself, the variance.

    Counts and divisors are at least 1 and below 2^31.
    """
    a, b = (_signed(s.digits, 32 * s.first + floats.LEAST_EXPONENT) for s in (x, y))
    of_sums = _Signed(a.negative ^ b.negative, _product(a.size, b.size), a.exponent + b.exponent)
    total = _signed(products.digits, 32 * products.first + floats.LEAST_PRODUCT_EXPONENT)
    scaled = _Signed(total.negative, carry([d * counts for d in total.size], len(total.size) + 1), total.exponent)
    numerator = _difference(scaled, of_sums)
    quotient, lost = divide(_raised(numerator.size, _EXTRA), counts)
    quotient, lost_too = divide(quotient, divisors)
    quotient[0] = quotient[0] | ((lost != 0) | (lost_too != 0))
    result = floats.to_double(quotient, numerator.exponent - 32 * _EXTRA)
    return np.where(numerator.negative, -result, result)


def _signed(digits: Digits, exponent: int) -> _Signed:
    carried = carry(digits, len(digits) + 2)
    negative = carried[-1] < 0
    return _Signed(negative, negate_where(negative, carried), exponent)


def _difference(a: _Signed, b: _Signed) -> _Signed:
    least = min(a.exponent, b.exponent)
    left, right = (_raised(n.size, (n.exponent - least) // 32) for n in (a, b))
    length = max(len(left), len(right))
    zero = np.zeros_like(left[0])
    pairs = zip([*left, *[zero] * (length - len(left))], [*right, *[zero] * (length - len(right))], strict=True)
    sign_a, sign_b = np.where(a.negative, -1, 1), np.where(b.negative, -1, 1)
    return _signed([sign_a * x - sign_b * y for x, y in pairs], least)


def _product(left: Sequence[Ints], right: Sequence[Ints]) -> list[Ints]:
    """The products of numbers given by carried digits."""
    result = np.zeros((len(left) + len(right), len(left[0])), np.int64)
    rows = _DIGITS_AT_ONCE // len(right)
    for start in range(0, len(left[0]), rows):
        block = slice(start, start + rows)
        digits = np.stack([digit[block] for digit in right]).view(np.uint64)
        for i, one in enumerate(left):
            if one[block].any():
                product = one[block].view(np.uint64) * digits
                result[i : i + len(right), block] += (product & np.uint64(LOW)).view(np.int64)
                result[i + 1 : i + 1 + len(right), block] += (product >> np.uint64(BITS)).view(np.int64)
    return carry(list(result), len(result))


def _raised(digits: Sequence[Ints], by: int) -> list[Ints]:
    """The numbers times 2^(32 by)."""
    return [*[np.zeros_like(digits[0])] * by, *digits]
