"""Variances from exact sums: (n * sum of squares - square of the sum) / (n * n), or / (n * (n - 1)), rounded once.

The numerator is an exact integer, so nothing cancels that should not: the variance of equal values is 0, whatever their
size, and a value that went in and out again leaves no trace.
"""

from collections.abc import Sequence

import numpy as np

from tidemark_replica.arrangement.numbers import floats
from tidemark_replica.arrangement.numbers.averages import divide
from tidemark_replica.arrangement.numbers.digits import BITS, LOW, Digits, carry, negate_where
from tidemark_replica.arrangement.updates import Ints

_EXTRA = 4
"""Digits behind the point: a quotient by less than 2^62 keeps 66 bits, of which a double shows 53."""


def variance(
    counts: Ints, divisors: Ints, sums: Digits, first_sum: int, squares: Digits, first_square: int
) -> floats.Doubles:
    """(n * squares - sums^2) / (n * divisor), given digits from the positions of `floats.split` and `split_squares`.

    Counts and divisors are at least 1 and below 2^31.
    """
    squared = _square(_size(sums))
    scaled = carry([d * counts for d in _size(squares)], len(squares) + 3)
    squared_exponent = 2 * (32 * first_sum + floats.LEAST_EXPONENT)
    scaled_exponent = 32 * first_square + floats.LEAST_SQUARE_EXPONENT
    least = min(squared_exponent, scaled_exponent)
    aligned = [_raised(d, (e - least) // 32) for d, e in ((scaled, scaled_exponent), (squared, squared_exponent))]
    length = max(map(len, aligned)) + 1
    a, b = ([*d, *[np.zeros_like(counts)] * (length - len(d))] for d in aligned)
    numerator = carry([x - y for x, y in zip(a, b, strict=True)], length)
    quotient, lost = divide(_raised(numerator, _EXTRA), counts)
    quotient, lost_too = divide(quotient, divisors)
    quotient[0] = quotient[0] | ((lost != 0) | (lost_too != 0))
    return floats.to_double(quotient, least - 32 * _EXTRA)


def _size(digits: Digits) -> list[Ints]:
    """Carried digits of the absolute values."""
    carried = carry(digits, len(digits) + 2)
    return negate_where(carried[-1] < 0, carried)


def _square(digits: Sequence[Ints]) -> list[Ints]:
    """The squares of numbers given by carried digits."""
    result = [np.zeros_like(digits[0]) for _ in range(2 * len(digits))]
    for i, a in enumerate(digits):
        for j, b in enumerate(digits[: i + 1]):
            product = a.view(np.uint64) * b.view(np.uint64)
            times = 1 if i == j else 2
            result[i + j] += times * (product & np.uint64(LOW)).view(np.int64)
            result[i + j + 1] += times * (product >> np.uint64(BITS)).view(np.int64)
    return carry(result, len(result))


def _raised(digits: Sequence[Ints], by: int) -> list[Ints]:
    """The numbers times 2^(32 by)."""
    return [*[np.zeros_like(digits[0])] * by, *digits]
