"""Exact digits against Python's integers and fractions."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import unscaled
from tests.arrangement.numbers.exact import exactly, spark_average
from tidemark_replica.arrangement.numbers import averages, digits, floats, small


def as_int(number: list[np.ndarray], i: int) -> int:
    return sum(int(d[i]) << (32 * place) for place, d in enumerate(number))


def integers(rng: np.random.Generator, bits: int, n: int) -> list[int]:
    edges = [0, 1, -1, 2**32, -(2**32), 2**32 - 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    sizes = rng.integers(1, bits, n)
    return edges + [int.from_bytes(rng.bytes(20), "little") % 2 ** int(s) * int(rng.choice([-1, 1])) for s in sizes]


def test_int64_digits_are_exact_and_sums_are_checked() -> None:
    """Weighted sums of any int64 values equal Python's, and whether they fit 64 bits is known."""
    rng = np.random.default_rng(1)
    values = np.array(integers(rng, 64, 500), dtype=np.int64)
    weights = rng.integers(-1000, 1000, len(values))
    parts = [d * weights for d in digits.of_int64(values)]
    carried = digits.carry(parts, 3)
    value, fits = digits.to_int64(carried)
    for i, (v, w) in enumerate(zip(values.tolist(), weights.tolist(), strict=True)):
        assert as_int(carried, i) == v * w
        assert fits[i] == (-(2**63) <= v * w < 2**63)
        if fits[i]:
            assert value[i] == v * w
    assert 0 < fits.sum() < len(fits)


@pytest.mark.parametrize(("precision", "scale"), [(18, 2), (19, 0), (38, 4), (38, 38), (5, 5)])
def test_decimal_digits_are_exact_and_checked(precision: int, scale: int) -> None:
    """Sums of decimals at the edge of their type: exact, and refused one step beyond 10^precision."""
    rng = np.random.default_rng(precision)
    top = 10**precision - 1
    values = [v for v in integers(rng, 128, 300) if abs(v) <= top] + [top, -top, top - 1]
    column = pa.array([unscaled(v, scale) for v in values], pa.decimal128(precision, scale))
    assert len(digits.of_decimal(column)) == digits.decimal_digits(precision)
    weights = rng.choice([-3, -1, 1, 2, 7], len(values))
    carried = digits.carry([d * weights for d in digits.of_decimal(column)], 5)
    valid = rng.integers(0, 5, len(values)) > 0
    result, fits = digits.to_decimal(carried, precision, scale, valid)
    for i, (v, w) in enumerate(zip(values, weights.tolist(), strict=True)):
        assert as_int(carried, i) == v * w
        assert fits[i] == (abs(v * w) <= top)
        if fits[i]:
            assert result[i].as_py() == (unscaled(v * w, scale) if valid[i] else None)
    result.validate(full=True)
    assert 0 < fits.sum() < len(fits)


@pytest.mark.parametrize(("precision", "scale"), [(5, 5), (15, 2), (18, 0), (25, 4), (38, 6)])
@pytest.mark.parametrize("bits", [20, 40, 59, 63, 80])
def test_agree_small_sums_with_digits(precision: int, scale: int, bits: int) -> None:
    """Where 64 bits do, sums and averages are those that digits give; where they do not, digits are asked."""
    rng = np.random.default_rng(precision + bits)
    values = [v for v in integers(rng, bits, 200) if abs(v) < 10**precision]
    column = pa.array([unscaled(v, scale) for v in values], pa.decimal128(precision, scale))
    weights = rng.choice([-3, -1, 1, 2, 7, 1000], len(values))
    parts = np.stack([d * weights for d in digits.of_decimal(column)])
    totals = [v * w for v, w in zip(values, weights.tolist(), strict=True)]
    found = small.total(parts)
    assert (found is not None) or max(map(abs, totals)) >= 2**60
    if found is None:
        return
    assert found.tolist() == totals
    carried, valid = digits.carry(parts, 5), rng.integers(0, 5, len(values)) > 0
    wide = min(precision + 10, 38)
    slow, fits = digits.to_decimal(carried, wide, scale, valid)
    quick, quick_fits = small.decimals(found, wide, scale, valid)
    assert quick.equals(slow)
    assert (fits if quick_fits is None else quick_fits == fits).all()
    counts = rng.integers(1, 10**6, len(values))
    to = min(precision + 4, 38), min(scale + 4, 38)
    slow, fits = averages.decimal_average(carried, counts, scale, *to, valid)
    if (made := small.averages(found, counts, scale, *to, valid)) is not None:
        assert made[0].equals(slow)
        assert (fits if made[1] is None else made[1] == fits).all()
    else:
        assert max(map(abs, totals)) * 10**4 >= 2**60


def doubles(rng: np.random.Generator, kind: int, n: int) -> np.ndarray:
    if kind == 0:
        return rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
    if kind == 1:
        return rng.integers(0, 2**63, n).view(np.float64)  # any finite bits, mostly huge exponents
    if kind == 2:
        return rng.choice([5e-324, -5e-324, 1e308, -1e308, 1.7e308, 2.2250738585072014e-308, 1.0, -0.0, 2.0**53], n)
    return rng.choice([1.0, 2.0**-53, 2.0**-54, -(2.0**-53), 1 + 2.0**-52, 2.0**-105], n)  # ties and nearly ties


@pytest.mark.parametrize("seed", range(400))
def test_sums_of_doubles_are_correctly_rounded(seed: int) -> None:
    """Sums over subnormals, halfway cases and near-overflow equal the exact sum rounded once."""
    rng = np.random.default_rng(seed)
    values = doubles(rng, seed % 4, int(rng.integers(1, 12)))
    values = np.where(np.isfinite(values), values, 1.5) * rng.choice([-1, 1], len(values))
    total = np.zeros(70, np.int64)
    parts = floats.split(values)
    for i, piece in enumerate(parts.pieces):
        np.add.at(total, parts.position + i, piece)
    result = floats.to_double([np.array([d]) for d in total], floats.LEAST_EXPONENT)
    assert result.tolist() == [exactly(values.tolist())]
    assert math.copysign(1, result[0]) == (-1 if result[0] < 0 else 1)


def test_added_and_retracted_values_leave_no_digit() -> None:
    """Digits are linear: any order of additions and retractions leaves exact zeros, without carrying."""
    rng = np.random.default_rng(2)
    values = np.concatenate([doubles(rng, k, 50) for k in range(4)])
    values = values[np.isfinite(values)]
    total = np.zeros(70, np.int64)
    for sign in (1, -1):
        order = rng.permutation(len(values))
        parts = floats.split(values[order])
        for i, piece in enumerate(parts.pieces):
            np.add.at(total, parts.position + i, sign * piece)
    assert not total.any()


def test_nan_and_infinities_win_over_digits() -> None:
    """NaN beats all, opposite infinities make NaN, one infinity wins over finite values."""
    zero, one = np.array([0]), np.array([1])
    finite = np.array([2.5])
    assert np.isnan(floats.with_specials(finite, one, zero, zero))
    assert np.isnan(floats.with_specials(finite, zero, one, one))
    assert floats.with_specials(finite, zero, one, zero) == np.inf
    assert floats.with_specials(finite, zero, zero, one) == -np.inf
    assert floats.with_specials(finite, zero, zero, zero) == 2.5


@pytest.mark.parametrize(("precision", "scale"), [(15, 2), (38, 4), (38, 34), (38, 36), (38, 38), (2, 0), (10, 10)])
def test_averages_of_decimals_round_as_spark_does(precision: int, scale: int) -> None:
    """Ties in both directions, counts up to 2^30, results that no longer fit."""
    rng = np.random.default_rng(scale)
    result_precision, result_scale = min(precision + 4, 38), min(scale + 4, 38)
    counts = np.concatenate([rng.integers(1, 50, 400), rng.integers(1, 2**30, 100), [21, 2, 2, 2**30]])
    sums = [*integers(rng, 100, len(counts))[: len(counts) - 4], 10, 1, -1, 5]
    sums = [s % 10**38 * (1 if s > 0 else -1) for s in sums]
    parts = digits.of_decimal(pa.array([unscaled(s, 0) for s in sums], pa.decimal128(38, 0)))
    valid = np.ones(len(counts), np.bool_)
    result, fits = averages.decimal_average(
        digits.carry(parts, 5), counts, scale, result_precision, result_scale, valid
    )
    for i, (s, c) in enumerate(zip(sums, counts.tolist(), strict=True)):
        expected = spark_average(s, c, scale, result_scale)
        assert fits[i] == (expected.copy_abs() < Decimal(10) ** (result_precision - result_scale))
        if fits[i]:
            assert result[i].as_py() == expected
    assert fits.any()
