"""The reduce kernel against exact arithmetic in Python, at every time, however a history is cut."""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import (
    A,
    Driver,
    contents,
    updates,
    with_garbage_under_nulls,
)
from tests.arrangement.reduce.reduce_model import expected_output, history, shape_of
from tidemark_replica.arrangement.errors import DiffOverflow, MalformedUpdates, UnsupportedType
from tidemark_replica.arrangement.rows.task_share import TaskShare
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import BatchWriter, StepId, merge
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce


def run(
    driver: Driver, rng: np.random.Generator, shape: AccumulatorLayout, rows: list[tuple], cuts: list[int]
) -> Counter:
    """All steps of a history; what came out, checked to be consolidated."""
    result: Counter = Counter()
    for lower, upper in pairwise(cuts):
        chosen = [(row, max(t, cuts[0]), d) for row, t, d in rows]
        chosen = [u for u in chosen if lower <= u[1] < upper]
        rng.shuffle(chosen)
        batch = updates(shape_types(shape), chosen)
        columns = [with_garbage_under_nulls(c, rng) for c in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        cut = int(rng.integers(0, batch.num_rows + 1))
        context = driver.context(lower, upper, hydration=lower == cuts[0])
        output = list(reduce(context, ReduceSpec(A, shape), [batch.slice(0, cut), batch.slice(cut)]))
        assert ok_rows(output) == sum(1 for _, error, _ in contents(output) if error is None)
        result.update(contents(output))
        driver.commit(context, compact=bool(rng.integers(0, 4)))
    return Counter({k: d for k, d in result.items() if d})


def ok_rows(output: list) -> int:
    """The number of rows that are not errs: each must say something, none may undo another."""
    return sum(batch["__error"].null_count for batch in output)


def shape_types(shape: AccumulatorLayout) -> list[pa.DataType]:
    return list(shape.types)


def drive(tmp_path: Path, shape: AccumulatorLayout, lower: int = 0, **options) -> Driver:
    return Driver(tmp_path, Manifest.empty(A, shape.layout, lower), **options)


KEYS = ((0, 1), (), (6,), (5, 8))
QUICK_SEEDS, SEEDS = 6, 16


def keys_and_seeds() -> list:
    """Every key with every seed. Quick: each key with every aggregate (seed 0), and each other seed with one key."""
    every = [(key, seed) for seed in range(SEEDS) for key in KEYS]
    quick = {(KEYS[seed % len(KEYS)], seed) for seed in range(QUICK_SEEDS)} | {(key, 0) for key in KEYS}
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in every]


@pytest.mark.parametrize(("key", "seed"), keys_and_seeds(), ids=str)
def test_split_every_cut_of_a_history_gives_the_exact_output(seed: int, key: tuple, tmp_path: Path) -> None:
    """Steps and chunks of all sizes, errors and repairs, groups emptied and refilled: equal at every time."""
    rng = np.random.default_rng(seed)
    shape = shape_of(rng if seed else None, key)
    rows = [(row, max(t, 2), d) for row, t, d in history(rng, 14, 60)]
    expected = expected_output(shape, rows, 2)
    for chunk_rows, cuts in ((1000, [2, 14]), (5, [2, 3, 7, 8, 14]), (1, list(range(2, 15)))):
        driver = drive(tmp_path / str(chunk_rows), shape, 2, chunk_rows=chunk_rows)

        result = run(driver, rng, shape, rows, cuts)

        assert result == expected


def test_the_histories_above_show_errors_and_repairs() -> None:
    """The property test would be worth little if its histories met none of the errors."""
    seen = set()
    for seed in range(6):
        output = expected_output(shape_of(None), history(np.random.default_rng(seed), 14, 60), 2)
        seen |= {json.loads(error)["code"] for _, error, _ in output if error and error != "boom"}
    assert seen == {
        "NEGATIVE_MULTIPLICITY",
        "ACCUMULATION_NOT_ZERO",
        "ARITHMETIC_OVERFLOW",
        "NUMERIC_VALUE_OUT_OF_RANGE",
    }


def one(tmp_path: Path, shape: AccumulatorLayout, steps: list[list[tuple]], **options) -> list[dict]:
    """Steps at times 0, 1, 2, ...: what each put out."""
    driver = drive(tmp_path, shape, **options)
    result = []
    for time, rows in enumerate(steps):
        context = driver.context(time, time + 1, hydration=time == 0)
        batch = updates(shape_types(shape), [(row, time, diff) for row, diff in rows])
        output = list(reduce(context, ReduceSpec(A, shape), [batch]))
        output_rows = contents(output)
        assert ok_rows(output) == sum(1 for _, error, _ in output_rows if error is None)
        result.append(
            {(row if error is None else json.loads(error)["code"]): d for (row, error, _), d in output_rows.items()}
        )
        driver.commit(context, compact=True)
    return result


COUNT_AND_SUM = (ColumnAggregate("count", None, "count(*)"), ColumnAggregate("sum", 0, "sum(v)"))


def test_a_global_aggregate_has_a_row_before_any_input(tmp_path: Path) -> None:
    """Hydration over nothing emits count 0 and sum NULL; filled, then emptied, it comes back to that row."""
    shape = AccumulatorLayout((pa.int64(),), (), COUNT_AND_SUM)
    steps = one(tmp_path, shape, [[], [((5,), 1)], [], [((5,), -1)]])
    assert steps == [{(0, None): 1}, {(0, None): -1, (1, 5): 1}, {}, {(1, 5): -1, (0, None): 1}]


def test_rows_without_columns_can_be_counted(tmp_path: Path) -> None:
    """count(*) needs no column: a projection may have left none."""
    shape = AccumulatorLayout((), (), (ColumnAggregate("count", None, "count(*)"),))
    assert one(tmp_path, shape, [[((), 3)], [((), -1)]]) == [{(3,): 1}, {(3,): -1, (2,): 1}]


def test_only_the_share_of_the_only_group_emits_the_global_row(tmp_path: Path) -> None:
    """One of several tasks over an empty input emits the default row."""
    shape = AccumulatorLayout((pa.int64(),), (), COUNT_AND_SUM)
    driver = drive(tmp_path, shape)
    contexts = [driver.context(0, 1, hydration=True, share=TaskShare(b, 5)) for b in range(5)]
    outputs = [contents(reduce(c, ReduceSpec(A, shape), [])) for c in contexts]
    assert sorted(map(len, outputs)) == [0, 0, 0, 0, 1]


def test_an_overflow_is_an_error_that_a_retraction_repairs(tmp_path: Path) -> None:
    """The group's row gives way to an error and comes back; other groups are untouched."""
    shape = AccumulatorLayout((pa.string(), pa.int64()), (0,), (ColumnAggregate("sum", 1, "sum(v)"),))
    big = ("a", 2**63 - 1)
    steps = one(tmp_path, shape, [[(big, 1), (("b", 1), 1)], [(("a", 1), 1)], [(("a", 1), -1)]])
    assert steps == [
        {("a", 2**63 - 1): 1, ("b", 1): 1},
        {("a", 2**63 - 1): -1, "ARITHMETIC_OVERFLOW": 1},
        {"ARITHMETIC_OVERFLOW": -1, ("a", 2**63 - 1): 1},
    ]


def test_a_row_retracted_before_it_came_is_an_error_until_it_comes(tmp_path: Path) -> None:
    """A negative count shows as an error and is gone once the insertion arrives."""
    shape = AccumulatorLayout((pa.string(),), (0,), ())
    assert one(tmp_path, shape, [[(("a",), -1)], [(("a",), 1)], [(("a",), 1)]]) == [
        {"NEGATIVE_MULTIPLICITY": 1},
        {"NEGATIVE_MULTIPLICITY": -1},
        {("a",): 1},
    ]


def test_sums_left_over_without_rows_are_an_error(tmp_path: Path) -> None:
    """One value in, another out: no rows, but a sum: an error rather than a vanished group."""
    shape = AccumulatorLayout((pa.string(), pa.float64()), (0,), (ColumnAggregate("sum", 1, "sum(v)"),))
    steps = one(tmp_path, shape, [[(("a", 0.5), 1)], [(("a", 0.25), -1)], [(("a", 0.25), 1)]])
    assert steps == [
        {("a", 0.5): 1},
        {("a", 0.5): -1, "ACCUMULATION_NOT_ZERO": 1},
        {"ACCUMULATION_NOT_ZERO": -1, ("a", 0.5): 1},
    ]


def test_distinct_emits_only_first_and_last_occurrences(tmp_path: Path) -> None:
    """Without aggregates: a key appears with its first row and goes with its last; NULL, NaN and zero are keys."""
    shape = AccumulatorLayout((pa.float64(),), (0,), ())
    steps = [
        [((0.0,), 1), ((math.nan,), 2), ((None,), 1)],
        [((-0.0,), 1), ((math.nan,), -1)],
        [((0.0,), -2), ((None,), -1)],
    ]
    assert one(tmp_path, shape, steps) == [{(0.0,): 1, ("NaN",): 1, (None,): 1}, {}, {(0.0,): -1, (None,): -1}]


def test_a_change_without_effect_emits_nothing(tmp_path: Path) -> None:
    """The sum stays, the count is not shown: no retraction of an equal row."""
    shape = AccumulatorLayout((pa.int64(), pa.int64()), (0,), (ColumnAggregate("sum", 1, "sum(v)"),))
    assert one(tmp_path, shape, [[((1, 5), 1)], [((1, 0), 1)], [((1, 2), 1), ((1, -2), 1)]]) == [{(1, 5): 1}, {}, {}]


def test_groups_of_very_many_rows_are_refused_for_sums_only(tmp_path: Path) -> None:
    """Past 2^30 rows digits might overflow: sums are an error, counts stay exact."""
    counts = AccumulatorLayout((pa.int64(),), (), (ColumnAggregate("count", None, "count(*)"),))
    sums = AccumulatorLayout((pa.int64(),), (), COUNT_AND_SUM)
    steps = [[((1,), 2**30)], [((1,), 1)], [((1,), -1)]]
    assert one(tmp_path / "c", counts, steps)[1] == {(2**30,): -1, (2**30 + 1,): 1}
    assert one(tmp_path / "s", sums, steps)[1:] == [
        {(2**30, 2**30): -1, "TOO_MANY_ROWS": 1},
        {"TOO_MANY_ROWS": -1, (2**30, 2**30): 1},
    ]


def test_state_is_gone_when_all_rows_are(tmp_path: Path) -> None:
    """Rows that went in and out leave no row of state behind, floats included."""
    rng = np.random.default_rng(4)
    shape = shape_of(None)
    rows = [u for u in history(rng, 10, 80) if not isinstance(u[0], str)]
    back = [(row, 11, -d) for row, _, d in rows]
    driver = drive(tmp_path, shape)
    run(driver, rng, shape, rows + back, [0, 4, 10, 12])
    state = driver.manifests[A]
    everything = Merge(A, state.batches, 11)
    assert merge(everything, state.layout, driver.cache, BatchWriter(tmp_path, StepId("all"))) is None


def test_many_groups_are_evaluated_in_ranges(tmp_path: Path) -> None:
    """200,000 groups in chunks: each comes out once, and no output batch is longer than a chunk."""
    shape = AccumulatorLayout(
        (pa.int64(), pa.float64()), (0,), (ColumnAggregate("sum", 1, "sum(v)"), ColumnAggregate("count", None, "n"))
    )
    n = 200_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(n) // 2),
            pa.array(np.arange(n) / 8),
            pa.array(np.zeros(n, np.int64)),
            pa.array(np.ones(n, np.int64)),
            pa.nulls(n, pa.string()),
        ],
        schema=updates([pa.int64(), pa.float64()], []).schema,
    )
    driver = drive(tmp_path, shape, chunk_rows=40_000)
    output = list(reduce(driver.context(0, 1, hydration=True), ReduceSpec(A, shape), [batch]))
    assert max(b.num_rows for b in output) <= 40_000
    table = pa.Table.from_batches(output).sort_by("c0")
    assert table["c0"].to_numpy().tolist() == list(range(n // 2))
    assert table["c1"].to_numpy().tolist() == ((np.arange(n) / 8).reshape(-1, 2).sum(axis=1)).tolist()


def test_an_unsummable_type_is_refused_by_name() -> None:
    """No accumulable max, no sum of strings."""
    for function, t in (("sum", pa.string()), ("max", pa.int64()), ("avg", pa.date32())):
        shape = AccumulatorLayout((t,), (), (ColumnAggregate(function, 0, f"{function}(v)"),))
        with pytest.raises(UnsupportedType, match=rf"{function}\(v\): no accumulable"):
            _ = shape.accumulators


def test_another_reduces_state_is_refused(tmp_path: Path) -> None:
    """A plan change needs a new arrangement; the old state would be misread."""
    shape = AccumulatorLayout((pa.int64(),), (), COUNT_AND_SUM)
    driver = drive(tmp_path, AccumulatorLayout((pa.int64(),), (), ()))
    with pytest.raises(MalformedUpdates, match="does not hold the state"):
        list(reduce(driver.context(0, 1), ReduceSpec(A, shape), []))


def test_absurd_multiplicities_are_refused(tmp_path: Path) -> None:
    """Counts that could wrap around 64 bits raise instead."""
    shape = AccumulatorLayout((pa.int64(),), (), COUNT_AND_SUM)
    batch = updates([pa.int64()], [((1,), 0, 2**62)])
    with pytest.raises(DiffOverflow):
        list(reduce(drive(tmp_path, shape).context(0, 1), ReduceSpec(A, shape), [batch]))


def test_a_mean_that_underflows_is_the_zero_of_all_zeros(tmp_path: Path) -> None:
    """-5e-324 / 2 is -0.0 in floats, which equals 0.0: the row that goes must be the one that came."""
    shape = AccumulatorLayout((pa.int64(), pa.float64()), (0,), (ColumnAggregate("avg", 1, "avg(x)"),))
    driver, found = drive(tmp_path, shape), []
    for time, value in enumerate((0.0, -5e-324, 3.0)):
        context = driver.context(time, time + 1, hydration=time == 0)
        batches = list(reduce(context, ReduceSpec(A, shape), [updates(shape_types(shape), [((1, value), time, 1)])]))
        found.append([(str(row["c1"]), row["__diff"]) for batch in batches for row in batch.to_pylist()])
        driver.commit(context)
    assert found == [[("0.0", 1)], [], [("0.0", -1), ("1.0", 1)]]
