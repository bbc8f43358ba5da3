"""Joins that find groups in the state of a reduce, against joins that keep the reduce's rows, over random histories."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import Driver, contents, seeds, updates
from tests.arrangement.reduce.reduce_model import history, shape_of
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, ColumnType
from tidemark_replica.arrangement.errors import MalformedUpdates, OutOfFrontier
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, make_updates, row_columns, times
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.evaluator import evaluation
from tidemark_replica.kernels.joins import stored_groups
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join
from tidemark_replica.kernels.joins.stored_groups import GroupRows
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

STATE, OTHER_STATE = ArrangementId("state"), ArrangementId("other-state")
KEPT, GROUPS = ArrangementId("kept"), ArrangementId("groups")
OTHER_KEPT, OTHER_GROUPS = ArrangementId("other-kept"), ArrangementId("other-groups")


@pytest.fixture(autouse=True)
def few_groups_in_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups take several ranges of groups."""
    monkeypatch.setattr(stored_groups, "RANGE_GROUPS", 2)


class Reduced:
    """A reduce, and the rows of it that a join has: `computed` of its output."""

    def __init__(
        self,
        state: ArrangementId,
        shape: AccumulatorLayout,
        computed: tuple[MapFilterProject | tuple[int, ...], ...] = (),
        types: tuple[pa.DataType, ...] | None = None,
        key: tuple[int, ...] | None = None,
    ) -> None:
        self.state, self.shape, self.computed = state, shape, computed
        width = len(shape.key)
        self.layout = Layout.of_rows(types or shape.output_types, tuple(range(width)) if key is None else key)

    def updates(self, context: StepContext, rows: list[Updates]) -> list[Updates]:
        made = list(reduce(context, ReduceSpec(self.state, self.shape), rows))
        for computed in self.computed:
            made = [_computed(computed, batch) for batch in made]
        return made

    def side(self, kept: ArrangementId, *, in_state: bool) -> JoinInput:
        columns = tuple(range(len(self.layout.types)))
        if in_state:
            return JoinInput(self.state, columns, groups=GroupRows(self.shape, self.computed, self.layout))
        return JoinInput(kept, columns)


def _computed(how: MapFilterProject | tuple[int, ...], batch: Updates) -> Updates:
    if isinstance(how, MapFilterProject):
        return evaluation(how)(batch)
    row = row_columns(batch)
    return make_updates([row[c] for c in how], times(batch), diffs(batch), errors(batch))


def drawn(rng: np.random.Generator, rows: list, lower: int, upper: int) -> list[tuple]:
    chosen = [u for u in rows if lower <= u[1] < upper]
    rng.shuffle(chosen)
    return chosen


def driver_of(folder: Path, chunk_rows: int, left: Layout, sides: list[Reduced], begin: int) -> Driver:
    made = [Manifest.empty(a, left, begin) for a in (KEPT, GROUPS)]
    for number, side in enumerate(sides):
        made.append(Manifest.empty(side.state, side.shape.layout, begin))
        made.append(Manifest.empty((OTHER_KEPT, KEPT)[number], side.layout, begin))
    return Driver(folder, *{m.arrangement: m for m in made}.values(), chunk_rows=chunk_rows)


KEYS = ((0, 1), (6,), (5, 8))
CUTS = ((1000, [2, 14]), (7, [2, 3, 7, 8, 14]), (1, list(range(2, 15))))


@pytest.mark.broad
@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("seed", seeds(3, 12))
def test_agree_groups_in_the_state_and_a_copy_of_them(seed: int, key: tuple[int, ...], tmp_path: Path) -> None:
    """All aggregates, groups that empty and come back, failures, NULL and equal keys; whichever side is the reduce."""
    rng = np.random.default_rng(seed)
    shape = shape_of(rng if seed else None, key)
    side = Reduced(STATE, shape)
    rows, others = ([(row, max(t, 2), d) for row, t, d in history(rng, 14, n)] for n in (60, 40))
    left = Layout.of_rows(shape.types, key)
    null_safe = tuple(range(len(key))) if seed % 2 else ()
    found_any = 0
    for chunk_rows, cuts in CUTS:
        for is_left in (False, True):
            driver = driver_of(tmp_path / f"{chunk_rows}{is_left}", chunk_rows, left, [side], 2)
            for lower, upper in pairwise(cuts):
                context = driver.context(lower, upper, hydration=lower == cuts[0])
                grouped = side.updates(context, [updates(list(shape.types), drawn(rng, rows, lower, upper))])
                single = [updates(list(shape.types), drawn(rng, others, lower, upper))]
                streams = [(JoinSide.RIGHT, u) for u in single], [(JoinSide.LEFT, u) for u in grouped]
                if not is_left:
                    streams = [(JoinSide.RIGHT, u) for u in grouped], [(JoinSide.LEFT, u) for u in single]
                results = []
                for in_state, plain, copy in ((False, KEPT, OTHER_KEPT), (True, GROUPS, OTHER_KEPT)):
                    ends = [JoinInput(plain, key), side.side(copy, in_state=in_state)]
                    spec = JoinSpec(ends[is_left], ends[not is_left], null_safe)
                    sent = [*streams[1], *streams[0]]
                    results.append(contents(join(context, spec, sent, evaluation)))
                assert results[1] == results[0]
                found_any += len(results[0])
                driver.commit(context, compact=bool(rng.integers(0, 4)))
    assert found_any


def having(shape: AccumulatorLayout) -> Reduced:
    """n, k, 10 div n, of the groups with n > 1 of key k and n = count(*)."""
    schema = (ColumnType(BIGINT), ColumnType(BIGINT, False))
    n = ColumnRef(1, BIGINT, False)
    kept = MapFilterProject(schema, (), (call(">", (n, Literal("1", BIGINT)), BOOLEAN),))
    minus = call("-", (n, Literal("2", BIGINT)), BIGINT)
    quotient = call("div", (Literal("10", BIGINT), minus), BIGINT)
    computed = MapFilterProject(schema, (quotient,), (), (1, 0, 2))
    return Reduced(STATE, shape, (kept, computed, (0, 1, 2)), (pa.int64(),) * 3, (1,))


COUNTS = AccumulatorLayout((pa.int64(), pa.int64()), (0,), (ColumnAggregate("count", None, "count(*)"),))
DISTINCT = AccumulatorLayout((pa.int64(), pa.int64()), (0,), ())


def pairs(rng: np.random.Generator, n: int) -> list[tuple]:
    """Updates of (key, value), in any order; few keys, some of them NULL, some rows failed."""
    made = []
    for time in rng.integers(2, 14, n).tolist():
        row = (None if rng.integers(0, 6) == 0 else int(rng.integers(0, 4)), int(rng.integers(0, 3)))
        made.append(("boom" if rng.integers(0, 20) == 0 else row, time, int(rng.choice([-1, 1, 1]))))
    return made


@pytest.mark.parametrize("null_safe", [(), (0,)], ids=str)
@pytest.mark.parametrize("seed", seeds(4, 16))
def test_agree_what_is_computed_of_groups(seed: int, null_safe: tuple[int, ...], tmp_path: Path) -> None:
    """A condition on groups and what may fail of them, on one side or on both, the other one distinct rows."""
    rng = np.random.default_rng(seed)
    ends = [having(COUNTS), Reduced(OTHER_STATE, DISTINCT)]
    rows = [pairs(rng, 60), pairs(rng, 60)]
    seen: Counter[str] = Counter()
    for chunk_rows, cuts in CUTS:
        driver = driver_of(tmp_path / str(chunk_rows), chunk_rows, ends[1].layout, ends, 2)
        for lower, upper in pairwise(cuts):
            context = driver.context(lower, upper, hydration=lower == cuts[0])
            sent = [
                (where, batch)
                for where, end, of in zip(JoinSide, ends, rows, strict=True)
                for batch in end.updates(context, [updates(list(end.shape.types), drawn(rng, of, lower, upper))])
            ]
            copies, groups = (
                JoinSpec(ends[0].side(OTHER_KEPT, in_state=how), ends[1].side(KEPT, in_state=how), null_safe)
                for how in (False, True)
            )
            expected = contents(join(context, copies, sent))
            assert contents(join(context, groups, sent, evaluation)) == expected
            seen.update("error" if error else "row" for _, error, _ in expected)
            driver.commit(context, compact=bool(rng.integers(0, 4)))
    assert seen["row"]
    assert seen["error"]


def test_nothing_of_the_groups_is_kept(tmp_path: Path) -> None:
    """Also no file of the rows of the step that came first."""
    side = Reduced(STATE, COUNTS)
    driver = driver_of(tmp_path, 10, side.layout, [side], 2)
    context = driver.context(2, 5, hydration=True)
    grouped = side.updates(context, [updates(list(COUNTS.types), [((1, 1), 2, 1), ((2, 1), 2, 1)])])
    spec = JoinSpec(side.side(OTHER_KEPT, in_state=True), JoinInput(GROUPS, (0,)))
    other = updates([pa.int64(), pa.int64()], [((1, 7), 3, 1)])
    sent = [*((JoinSide.LEFT, u) for u in grouped), (JoinSide.RIGHT, other)]
    assert contents(join(context, spec, sent)) == {((1, 1, 1), None, 3): 1}
    assert set(context.writer.written) == {STATE, GROUPS}
    files = {f"{path.parent.name}/{path.name}" for path in tmp_path.rglob("*.arrow")}
    assert files == {ref.file for refs in context.writer.written.values() for ref in refs}


def test_a_row_after_the_groups_that_it_would_miss_is_refused(tmp_path: Path) -> None:
    side = Reduced(STATE, COUNTS)
    driver = driver_of(tmp_path, 10, side.layout, [side], 2)
    context = driver.context(2, 5, hydration=True)
    grouped = side.updates(context, [updates(list(COUNTS.types), [((1, 1), 2, 1)])])
    spec = JoinSpec(JoinInput(GROUPS, (0,)), side.side(OTHER_KEPT, in_state=True))
    other = updates([pa.int64(), pa.int64()], [((1, 7), 3, 1)])
    with pytest.raises(MalformedUpdates, match="comes first"):
        list(join(context, spec, [*((JoinSide.RIGHT, u) for u in grouped), (JoinSide.LEFT, other)]))


def test_a_state_with_the_updates_of_the_step_is_refused(tmp_path: Path) -> None:
    side = Reduced(STATE, COUNTS)
    driver = driver_of(tmp_path, 10, side.layout, [side], 2)
    context = driver.context(2, 5, hydration=True)
    side.updates(context, [updates(list(COUNTS.types), [((1, 1), 2, 1)])])
    driver.commit(context)
    spec = JoinSpec(JoinInput(GROUPS, (0,)), side.side(OTHER_KEPT, in_state=True))
    with pytest.raises(OutOfFrontier, match="before the step"):
        list(join(driver.context(4, 6), spec, []))
