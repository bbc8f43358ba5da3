"""Kernels inside a loop, against the function of rows up to each iteration, computed from nothing in Python."""

from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, seeds, updates
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.recursion.iterate import IterateSpec, iterate
from tidemark_replica.kernels.recursion.recursion_limit import RECURSION_LIMIT, RecursionLimitSpec, recursion_limit
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

INT = pa.int64()
COUNT = ColumnAggregate("count", None, "count(*)")
DISTINCT, COUNTS, COUNT_ALL = (
    AccumulatorLayout((INT,), (0,), ()),
    AccumulatorLayout((INT,), (0,), (COUNT,)),
    AccumulatorLayout((INT,), (), (COUNT,)),
)


def history(rng: np.random.Generator, times: int) -> list[tuple]:
    """((value, iteration), time, diff): rows that come in an iteration, go in a later one, and are corrected."""
    rows: list[tuple] = []
    for time in range(1, times):
        for _ in range(int(rng.integers(0, 6))):
            row = int(rng.integers(0, 3)), int(rng.integers(0, 5))
            rows.append((row, time, 1))
            if rng.integers(0, 2):
                rows.append(((row[0], row[1] + int(rng.integers(0, 4))), int(rng.integers(time, times)), -1))
    return rows


def output(shape: AccumulatorLayout, rows: Counter) -> Counter:
    """The output of the reduce for a multiset; an error for a group that holds less than nothing."""
    groups = {row: n for row, n in rows.items() if n}
    if not shape.key:
        total = sum(groups.values())
        return Counter({((total,), None): 1}) if total >= 0 else Counter({(None, True): 1})
    made: Counter = Counter()
    for value, n in groups.items():
        row = (value,) if shape is DISTINCT else (value, n)
        made[(row, None) if n > 0 else (None, True)] += 1
    return made


def at(found: Counter, time: int, iteration: int | None) -> Counter:
    """The rows that are shown at a time from an iteration on (None: the errors, which have none)."""
    made: Counter = Counter()
    for (row, error, when), diff in found.items():
        if when <= time and (error is None) == (iteration is not None):
            if error is None and row[-1] <= iteration:
                made[row[:-1], None] += diff
            elif error is not None:
                made[None, True] += diff
    return Counter({k: n for k, n in made.items() if n})


@pytest.mark.parametrize("shape", [DISTINCT, COUNTS, COUNT_ALL], ids=["distinct", "counts", "count of all"])
@pytest.mark.parametrize("seed", seeds(4, 40))
def test_split_a_kernel_inside_a_loop_is_right_in_every_iteration(
    seed: int, shape: AccumulatorLayout, tmp_path: Path
) -> None:
    """At every time and from every iteration on, also where a group is empty, in error, or changes in between."""
    rng = np.random.default_rng(seed)
    rows = history(rng, 9)
    spec = IterateSpec(A, (INT,), shape.key, ReduceSpec(A, shape), ((A, shape.layout),))
    driver = Driver(tmp_path, Manifest.empty(A, spec.layout, 1), chunk_rows=int(rng.integers(1, 30)))
    found: Counter = Counter()
    for lower, upper in pairwise(range(1, 10)):  # a round has one time
        context = driver.context(lower, upper, hydration=lower == 1)
        batch = updates([INT, INT], [u for u in rows if u[1] == lower])
        found.update(contents(iterate(context, spec, [batch], reduce)))
        driver.commit(context, compact=True)

    for time in range(1, 9):
        for iteration in range(9):
            there: Counter = Counter()
            for (value, i), when, diff in rows:
                if when <= time and i <= iteration:
                    there[value] += diff
            right = output(shape, there)
            assert at(found, time, iteration) == Counter({k: n for k, n in right.items() if k[1] is None})
            if iteration == 8:
                assert at(found, time, None)[None, True] == right[None, True]


@pytest.mark.parametrize("shape", [DISTINCT, COUNTS, COUNT_ALL], ids=["distinct", "counts", "count of all"])
@pytest.mark.parametrize("seed", seeds(4, 40))
def test_split_a_kernel_inside_two_loops_is_right_in_every_pair_of_iterations(
    seed: int, shape: AccumulatorLayout, tmp_path: Path
) -> None:
    """A row is there from its iterations of both on."""
    rng = np.random.default_rng(seed)
    rows = [((*row, int(rng.integers(0, 3))), time, diff) for row, time, diff in history(rng, 5)]
    spec = IterateSpec(A, (INT,), shape.key, ReduceSpec(A, shape), ((A, shape.layout),), 2)
    driver = Driver(tmp_path, Manifest.empty(A, spec.layout, 1), chunk_rows=int(rng.integers(1, 30)))
    found: Counter = Counter()
    for time in range(1, 5):
        context = driver.context(time, time + 1, hydration=time == 1)
        batch = updates([INT, INT, INT], [u for u in rows if u[1] == time])
        found.update(contents(iterate(context, spec, [batch], reduce)))
        driver.commit(context, compact=True)
        for outer, inner in product(range(9), range(4)):
            there, shown = Counter(), Counter()
            for (value, i, j), when, diff in rows:
                there[value] += diff * (when <= time and i <= outer and j <= inner)
            for (row, error, _), diff in found.items():
                if error is None and row[-2] <= outer and row[-1] <= inner:
                    shown[row[:-2], None] += diff
            right = output(shape, there)
            assert Counter({k: n for k, n in shown.items() if n}) == Counter(
                {k: n for k, n in right.items() if not k[1]}
            )


def test_errors_pass_through_a_kernel_inside_a_loop_without_an_iteration(tmp_path: Path) -> None:
    """An error has all the output's columns, which are NULL."""
    spec = IterateSpec(A, (INT,), (0,), ReduceSpec(A, COUNTS), ((A, COUNTS.layout),))
    driver = Driver(tmp_path, Manifest.empty(A, spec.layout, 3))

    made = list(iterate(driver.context(3, 4), spec, [updates([INT, INT], [("broken", 3, 1)])], reduce))

    assert contents(made) == Counter({((None, None, None), "broken", 3): 1})


def test_a_limit_is_in_error_while_its_last_iteration_changes_anything(tmp_path: Path) -> None:
    """Also where what is added and what is taken away add up to nothing; earlier iterations are of no concern."""
    spec = RecursionLimitSpec(A, (INT, INT), 3, "r")
    driver = Driver(tmp_path, Manifest.empty(A, spec.layout, 1))
    errors = 0
    for time, rows, expected in (
        (1, [((7, 0), 1), ((8, 2), 1)], 0),
        (2, [((9, 3), 1), ((8, 3), -1)], 2),
        (3, [((8, 3), 1)], 1),
        (4, [((9, 3), -1), ((5, 4), 2)], 1),
        (5, [((5, 4), -2)], 0),
    ):
        context = driver.context(time, time + 1)
        made = contents(
            recursion_limit(context, spec, [updates([INT, INT], [(row, time, diff) for row, diff in rows])])
        )
        driver.commit(context, compact=True)
        errors += sum(diff for (_, error, _), diff in made.items() if error and RECURSION_LIMIT in error)
        assert errors == expected
        assert {row for row, error, _ in made if error is None} == {row for row, _ in rows}
