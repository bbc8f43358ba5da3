"""The average of decimals, digit for digit as Spark computes it.

Spark divides to 39 fraction digits, rounding half *down*, and then rounds half *up* to the result's scale. So a
quotient just below a tie may still be rounded up:

    sum 10, count 21, wanted scale 38:   0.476...  at 39 digits is 0.5,  and 0.5 rounds up to 1

The result's type is decimal(p+4, s+4), each capped at 38.
"""

import numpy as np

from tidemark_replica.arrangement.numbers.digits import BITS, Digits, carry, negate_where, to_decimal
from tidemark_replica.arrangement.updates import Array, Bools, Ints

_SPARK_FRACTION_DIGITS = 39


def decimal_average(
    carried: Digits, counts: Ints, sum_scale: int, precision: int, scale: int, valid: Bools
) -> tuple[Array, Bools]:
    """sum / count as decimal(precision, scale), NULL where not `valid`, and whether it fits.

    `carried`: five carried digits of the unscaled sum, at `sum_scale`. Counts are below 2^31.
    """
    divisor = np.where(valid, counts, 1)
    negative = carried[-1] < 0
    size = negate_where(negative, carried)
    scaled = carry([d * np.int64(10 ** (scale - sum_scale)) for d in size], len(size) + 1)
    quotient, remainder = _divide(scaled, divisor)
    quotient[0] = quotient[0] + _rounds_up(remainder, divisor, scale)
    signed = negate_where(negative, carry(quotient, len(quotient)))
    return to_decimal(signed, precision, scale, valid)


def _divide(digits: Digits, divisor: Ints) -> tuple[list[Ints], Ints]:
    """Short division of non-negative digits."""
    remainder, quotient = np.zeros_like(divisor), []
    for digit in reversed(digits):
        part = (remainder << BITS) | digit
        quotient.append(part // divisor)
        remainder = part % divisor
    return quotient[::-1], remainder


def _rounds_up(remainder: Ints, divisor: Ints, scale: int) -> Ints:
    """1 where remainder / divisor, rounded half down to the digits that Spark keeps, is at least one half."""
    kept = min(_SPARK_FRACTION_DIGITS - scale, 18)
    return (divisor - 2 * remainder <= (divisor - 1) // np.int64(10**kept)).astype(np.int64)
