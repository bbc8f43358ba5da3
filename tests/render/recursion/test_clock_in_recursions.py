"""Recursions that read the clock inside: at each time, the fixpoint with that time as now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.batches import NOW, answer
from tests.oracle.harness import Updates, contents
from tests.oracle.histories import History, random_bounds, random_history
from tests.oracle.plans import GET_T
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process
from tests.render.recursion.test_nested_recursions import Drawing
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp, Plan, refs
from tidemark_protocol.types import BIGINT
from tidemark_replica.render import recursion

END = 45
"""A time after the last change at which nothing falls due any more."""


class TimedDrawing(Drawing):
    """Plans of which parts are there for some milliseconds, by what the rows hold; some end before they begin."""

    def _value(self, depth: int, loops: int, bound: tuple[Get, ...]) -> Plan:
        plan = super()._value(depth, loops, bound)
        a, b = (self._later(column) for column in refs(plan.schema))
        match int(self._rng.integers(0, 8)):
            case 0:
                return Mfp(plan, MapFilterProject(plan.schema, lower=(a,)))
            case 1:
                return Mfp(plan, MapFilterProject(plan.schema, upper=(b,)))
            case 2:
                return Mfp(plan, MapFilterProject(plan.schema, projection=(1, 0), lower=(a,), upper=(b,)))
            case _:
                return plan

    def _later(self, column: ColumnRef) -> ScalarExpr:
        return call("+", (column, Literal(str(self._rng.integers(0, 30)), BIGINT)), BIGINT)


def check(plan: Plan, history: History, updates: Updates, what: str) -> None:
    for time in range(history.as_of, END):
        names = {GET_T.id: Counter(history.rows_at("t", time)), NOW: {(time,): 1}}
        assert contents(updates, time) == (answer(plan, names), {}), f"{what} at {time}"


@pytest.mark.broad
@pytest.mark.parametrize(("loops", "part"), [*((1, part) for part in range(4)), *((2, part) for part in range(4))])
def test_oracle_a_recursion_that_reads_the_clock_is_right_at_every_time(loops: int, part: int, tmp_path: Path) -> None:
    """Rows of a binding come and go by themselves, in the iterations in which they are there."""
    for seed in range(5 * part, 5 * part + 5 * len(seeds(1))):
        plan = TimedDrawing(seed).recursion(loops)
        history = random_history(TU, seed, times=4, changes=2)
        with in_process(tmp_path / str(seed), TU, history) as of:
            bounds = random_bounds(history, seed)
            updates = of.run(of.describe(plan), [*bounds, END])
            check(plan, history, updates, f"plan {seed} of {loops} loops")
            each = [time + 1 for time in range(history.as_of, END)]
            assert of.run(of.describe(plan), each) == updates


@pytest.mark.parametrize(("loops", "seed"), [(1, 5), (1, 18), (2, 9), (2, 19)])
def test_agree_a_loop_that_reads_the_clock_in_a_task_and_one_of_jobs(
    loops: int, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also in steps without new input, in which something falls due inside the loop alone."""
    plan = TimedDrawing(seed).recursion(loops)
    history = random_history(TU, seed, times=4, changes=2)
    monkeypatch.setattr(recursion, "fits_a_task", lambda parts: False)
    with in_process(tmp_path, TU, history) as of:
        updates = of.run(of.describe(plan), range(history.as_of + 1, END + 1))
    assert len({time for _, _, time in updates}) > 1
    check(plan, history, updates, f"plan {seed} of {loops} loops")
