"""Sums of floats are exact, in any order and under retraction, even where partial sums overflow.

+1e308 +1e308 -1e308     1e308: a double added to a double would be infinite for ever
+5e-324 +1e300 -1e300    5e-324
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.arrangement.histories import A, Driver, contents, plain, updates
from tests.arrangement.numbers.exact import exactly
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

SHAPE = AccumulatorLayout(
    (pa.float64(),), (), (ColumnAggregate("sum", 0, "sum(v)"), ColumnAggregate("avg", 0, "avg(v)"))
)
LARGE, SMALL = [1.7976931348623157e308, 1e308, -1e308], [5e-324, -5e-324, 2.2250738585072014e-308]
FLOATS = st.one_of(st.floats(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(LARGE + SMALL))
STEPS = st.lists(st.lists(st.tuples(FLOATS, st.booleans()), max_size=8), min_size=1, max_size=6)
"""Each step's values, and whether they are gone in the next."""


def totals(values: list[float]) -> tuple[object, object]:
    """(sum, avg): the sum rounded once from what it truly is, and divided as Spark does."""
    special = [v for v in values if not math.isfinite(v)]
    if special:
        made = math.fsum(special) if len(set(map(str, special))) == 1 else math.nan
        return plain(made), plain(made)
    return plain(exactly(values)), plain(exactly(values) / len(values))


def shown(steps: list[list[tuple[float, int]]]) -> list[tuple[object, object]]:
    """The sums after each step, as the kernel keeps them."""
    made: Counter = Counter()
    after = []
    with TemporaryDirectory() as folder:
        driver = Driver(Path(folder), Manifest.empty(A, SHAPE.layout, 0))
        for time, changes in enumerate(steps):
            context = driver.context(time, time + 1, hydration=time == 0)
            batch = updates(list(SHAPE.types), [((value,), time, diff) for value, diff in changes])
            for (row, error, _), diff in contents(list(reduce(context, ReduceSpec(A, SHAPE), [batch]))).items():
                assert error is None
                made[row] += diff
            driver.commit(context, compact=True)
            (there,) = (row for row, n in made.items() if n)
            after.append(there)
    return after


@settings(max_examples=60)
@example([[(1e308, True), (1e308, False)], [(-1e308, False)]])
@example([[(5e-324, False), (1e300, True)], []])
@example([[(math.inf, True), (1.5, False)], [(-math.inf, True)], [(math.nan, True)], []])
@given(STEPS)
def test_oracle_sums_of_any_floats_are_exact_after_anything_came_and_went(
    drawn: list[list[tuple[float, bool]]],
) -> None:
    """At every time the double nearest to the true sum of what is there."""
    there: list[float] = []
    steps, expected = [], []
    for at, step in enumerate(drawn):
        gone = [value for value, goes in drawn[at - 1] if goes] if at else []
        steps.append([(v, 1) for v, _ in step] + [(v, -1) for v in gone])
        for value in gone:
            there.remove(next(v for v in there if str(v) == str(value)))
        there += [v for v, _ in step]
        expected.append(totals(there) if there else (None, None))

    assert shown(steps) == expected
