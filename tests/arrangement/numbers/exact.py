"""Sums and averages as exact arithmetic gives them, rounded once."""

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

from tests.arrangement.histories import unscaled


def exactly(values: list[float]) -> float:
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def spark_average(total: int, count: int, sum_scale: int, scale: int) -> Decimal:
    """Rounded half up, away from zero."""
    wide = Context(prec=300)
    quotient = wide.divide(unscaled(total, sum_scale), Decimal(count))
    return quotient.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, wide)
