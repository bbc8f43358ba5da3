"""Covariances and correlations against exact fractions, while pairs come and go."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, updates
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

PAIR = pa.struct([("x", pa.float64()), ("y", pa.float64())])
FUNCTIONS = ("covar_pop", "covar_samp", "corr")
SHAPE = AccumulatorLayout((PAIR,), (), tuple(ColumnAggregate(f, 0, f"{f}(p)") for f in FUNCTIONS))
VALUES = [0.1, -0.3, 7.0, 1e16, -1e-9, 2.0**60, 5e-324, 1e150]
PAIRS = [{"x": x, "y": y} for x in VALUES for y in VALUES]


def numerator(pairs: list[dict], one: str, other: str) -> Fraction:
    values = [(Fraction(p[one]), Fraction(p[other])) for p in pairs]
    products, left, right = sum(a * b for a, b in values), sum(a for a, _ in values), sum(b for _, b in values)
    return len(values) * products - left * right


def expected(pairs: list[dict]) -> tuple:
    n = len(pairs)
    both, x, y = (numerator(pairs, *of) for of in (("x", "y"), ("x", "x"), ("y", "y")))
    population = float(both / n**2) if n else None
    sample = float(both / (n * (n - 1))) if n > 1 else None
    correlation = float(both) / (math.sqrt(x) * math.sqrt(y)) if x and y else None
    return population, sample, correlation


def run(folder: Path, steps: list[list[tuple[dict, int]]]) -> list[tuple | None]:
    """The rows of the only group after each step."""
    driver, shown, state = Driver(folder, Manifest.empty(A, SHAPE.layout, 0)), [], Counter()
    for time, step in enumerate(steps):
        context = driver.context(time, time + 1, hydration=time == 0)
        batch = updates([PAIR], [((pair,), time, diff) for pair, diff in step])
        for (row, error, _), diff in contents(reduce(context, ReduceSpec(A, SHAPE), [batch])).items():
            assert error is None
            state[row] += diff
        driver.commit(context, compact=True)
        (row,) = [r for r, n in state.items() if n]
        shown.append(row)
    return shown


@pytest.mark.parametrize("seed", range(4))
def test_pairs_come_and_go_and_every_time_the_result_is_the_exact_one_rounded(seed: int, tmp_path: Path) -> None:
    """From 1e150 to 5e-324 side by side, and back to nothing."""
    rng, alive, steps, answers = np.random.default_rng(seed), [], [], []
    for _ in range(8):
        come = [PAIRS[i] for i in rng.integers(0, len(PAIRS), 3)]
        gone = [alive.pop(int(rng.integers(0, len(alive)))) for _ in range(min(len(alive), 2))]
        alive += come
        steps.append([*((p, 1) for p in come), *((p, -1) for p in gone)])
        answers.append(expected(alive))
    steps.append([(p, -1) for p in alive])

    *found, last = run(tmp_path, steps)

    assert last == (None, None, None)
    for row, answer in zip(found, answers, strict=True):
        assert row[:2] == answer[:2]
        assert row[2] == pytest.approx(answer[2], rel=1e-13)


def test_constant_values_have_no_correlation_and_infinite_ones_nan(tmp_path: Path) -> None:
    """The result is Spark's, and NULL where a sample is of one pair."""
    pairs = [{"x": x, "y": y} for x, y in ((0.1, 1.0), (0.1, 2.0), (math.inf, 3.0))]
    one, two, three, again = run(tmp_path, [[(pairs[0], 1)], [(pairs[1], 1)], [(pairs[2], 1)], [(pairs[2], -1)]])
    assert one == (0.0, None, None)
    assert two == (0.0, 0.0, None) == again
    assert three == ("NaN", "NaN", "NaN")


def test_constant_values_have_no_correlation_with_infinite_ones(tmp_path: Path) -> None:
    """The result is Spark's, on either side; once the other value varies as well, it is NaN."""
    for one, other in (("x", "y"), ("y", "x")):
        flat = [{one: value, other: 2.0} for value in (0.1, math.nan, -math.inf)]
        steps = [[(flat[0], 1), (flat[1], 1)], [(flat[2], 1), (flat[1], -1)], [({one: 0.1, other: 3.0}, 1)]]
        nan, infinite, varied = run(tmp_path / one, steps)
        assert nan == infinite == ("NaN", "NaN", None)
        assert varied == ("NaN", "NaN", "NaN")
