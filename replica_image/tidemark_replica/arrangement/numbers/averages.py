"""The average of decimals: the exact quotient, rounded once, half up (away from zero), as in Spark.

    avg(decimal(p,s))  is  decimal(p+4, s+4), each capped at 38

Spark's quotients have 39 fraction digits, but it does not round twice: the test that compares with Spark has averages
of scale 38 on which that would show.
"""

import numpy as np

from tidemark_replica.arrangement.numbers.digits import BITS, Digits, carry, negate_where, to_decimal
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints


def decimal_average(
    carried: Digits, counts: Ints, sum_scale: int, precision: int, scale: int, valid: Bools
) -> tuple[Array, Bools]:
    """sum / count as decimal(precision, scale), NULL where not `valid`, and whether it fits: NULL does.

    `carried`: five carried digits of the unscaled sum, at `sum_scale`. Counts are below 2^31.
    """
    divisor = np.where(valid, counts, 1)
    negative = carried[-1] < 0
    size = negate_where(negative, carried)
    scaled = carry([d * np.int64(10 ** (scale - sum_scale)) for d in size], len(size) + 1)
    quotient, remainder = divide(scaled, divisor)
    quotient[0] = quotient[0] + (2 * remainder >= divisor)
    signed = negate_where(negative, carry(quotient, len(quotient)))
    average, fits = to_decimal(signed, precision, scale, valid)
    return average, fits | ~valid


def divide(digits: Digits, divisor: Ints) -> tuple[list[Ints], Ints]:
    """Short division of non-negative digits."""
    remainder, quotient = np.zeros_like(divisor), []
    for digit in reversed(digits):
        part = (remainder << BITS) | digit
        quotient.append(part // divisor)
        remainder = part % divisor
    return quotient[::-1], remainder
