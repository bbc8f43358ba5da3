"""Sums that fit 64 bits, as nearly all do, read with a few operations instead of dozens.

    digits of a sum ──total──> 64-bit integers, or None: some may not fit, so the caller uses `digits` and `averages`

The results are the same: `decimals` is `digits.to_decimal`, `averages` is `decimal_average`.
"""

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.numbers.digits import BITS
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints

_DIGIT, _HIGH = 1 << 61, 1 << 29
_BOUND = 1 << 62
_EVERY_WORD = 19
_63 = np.int64(63)


def total(digits: Ints) -> Ints | None:
    """The numbers with two or four digits, an array (digit, number); None unless all are surely below 2^62."""
    if digits.size == 0 or digits.max() >= _DIGIT or digits.min() <= -_DIGIT:
        return None
    low, *above = digits
    while len(above) > 1:
        *above, next_, last = above
        if not _is_high(last):
            return None
        above.append(next_ + (last << BITS))
    (high,) = above
    return low + (high << BITS) if _is_high(high) else None


def decimals(values: Ints, precision: int, scale: int, valid: Bools) -> tuple[Array, Bools | None]:
    """Unscaled values below 2^62 as decimals, NULL where not `valid`, and whether they fit (None: all do)."""
    fits = None if precision >= _EVERY_WORD else np.abs(values) < 10**precision
    whole = bool(valid.all())
    shown = valid if fits is None else valid & fits
    words = np.empty((len(values), 2), np.int64)
    words[:, 0] = values if whole and fits is None else np.where(shown, values, 0)
    words[:, 1] = words[:, 0] >> _63
    bitmap = None if whole else pa.py_buffer(np.packbits(valid, bitorder="little"))
    type = pa.decimal128(precision, scale)
    return pa.Array.from_buffers(type, len(values), [bitmap, pa.py_buffer(words)]), fits


def averages(
    sums: Ints, counts: Ints, sum_scale: int, precision: int, scale: int, valid: Bools
) -> tuple[Array, Bools | None] | None:
    """The averages of sums below 2^62, rounded half up; None if they may leave 64 bits."""
    size, factor = np.abs(sums), 10 ** (scale - sum_scale)
    if int(size.max(initial=0)) * factor >= _BOUND:
        return None
    divisor = np.where(valid, counts, 1)
    quotient, remainder = np.divmod(size * factor, divisor)
    quotient += 2 * remainder >= divisor
    average, fits = decimals(np.where(sums < 0, -quotient, quotient), precision, scale, valid)
    return average, fits if fits is None else fits | ~valid


def _is_high(digit: Ints) -> bool:
    """Whether a digit shifted up by 32 bits stays below 2^61."""
    return bool(digit.max() < _HIGH and digit.min() > -_HIGH)
