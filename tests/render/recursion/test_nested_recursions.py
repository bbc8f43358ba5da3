"""Recursions inside others that read them: in each round of the outer one, the inner one runs to its end."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tests.oracle.batches import answer
from tests.oracle.harness import contents
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import GET_T, counted, distinct, project
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process, interrupted
from tests.render.sharing.test_shared_arrangements import ands, join
from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.lir import (
    Get,
    LetRec,
    Negate,
    Plan,
    RecursiveBinding,
    Threshold,
    Union,
    refs,
)
from tidemark_replica.render import recursion
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.plan.fragments import LoopFragment

BOTH = project(GET_T, 0, 1)
LEAVES = (BOTH, project(GET_T, 1, 0))


class Drawing:
    """Plans of two integers a row. Their retractions and counts make them end by their limits alone."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._numbers = count()

    def recursion(self, loops: int, bound: tuple[Get, ...] = ()) -> Plan:
        """A recursion with so many loops inside each other."""
        names = [self._name() for _ in range(int(self._rng.integers(1, 3)))]
        limit = int(self._rng.integers(2, 5))
        all_names = (*bound, *names)
        values = [self._value(2, loops - 1, all_names) for _ in names]
        bindings = [
            RecursiveBinding(name.id, distinct(value, *refs(BOTH.schema)), limit, True)
            for name, value in zip(names, values, strict=True)
        ]
        body = names[0] if len(names) == 1 else ands(names[0], names[1])
        return LetRec(tuple(bindings), body)

    def _name(self) -> Get:
        return Get(LocalId(f"r{next(self._numbers)}"), BOTH.schema)

    def _value(self, depth: int, loops: int, bound: tuple[Get, ...]) -> Plan:
        """A plan that reads leaves and these names; the loops inside are in its first input."""
        if not depth:
            if loops:
                return self.recursion(loops, bound)
            choice = (*LEAVES, *bound, *bound)
            return choice[int(self._rng.integers(0, len(choice)))]
        one, other = self._value(depth - 1, loops, bound), self._value(depth - 1, 0, bound)
        match int(self._rng.integers(0, 5)):
            case 0:
                return Union((one, other))
            case 1:
                return Threshold(Union((distinct(one, *refs(BOTH.schema)), Negate(other))))
            case 2:
                return Threshold(Union((other, Negate(one))))
            case 3:
                on = (int(self._rng.integers(0, 2)), int(self._rng.integers(0, 2)))
                return project(join(distinct(one, *refs(BOTH.schema)), other, [on]), 0, 1)
            case _:
                return Union((counted(distinct(one, *refs(BOTH.schema))), other))


@pytest.mark.broad
@pytest.mark.parametrize(("loops", "part"), [*((2, part) for part in range(6)), *((3, part) for part in range(3))])
def test_oracle_recursions_inside_others_run_to_their_ends_in_each_round(loops: int, part: int, tmp_path: Path) -> None:
    """Over plans that add, take away and count; at every time, however the history is cut into steps."""
    for seed in range(2 * part, 2 * part + 2 * len(seeds(1))):
        plan = Drawing(seed).recursion(loops)
        history = random_history(TU, seed, times=4, changes=2)
        with in_process(tmp_path / str(seed), TU, history) as of:
            updates = of.run(of.describe(plan), [*history.times[1:], history.last + 1])
            for time in history.times:
                expected = answer(plan, {GET_T.id: Counter(history.rows_at("t", time))})
                assert contents(updates, time) == (expected, {}), f"plan {seed} of {loops} loops at {time}"
            assert of.run(of.describe(plan), random_bounds(history, seed)) == updates


def test_jobs_of_loops_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A step worker finds a job by its stage's name, which is unique in the dataflow."""
    monkeypatch.setattr(recursion, "fits_a_task", lambda parts: False)
    plan = ands(Drawing(5).recursion(2), Drawing(6).recursion(1))
    with in_process(tmp_path, TU, random_history(TU, 5)) as of:
        made = lower_dataflow(of.describe(plan), {}, "d1")

    jobs = [part for f in made.fragments for part in (f.body if isinstance(f, LoopFragment) else (f,))]
    names = [job.stage.name for job in jobs]

    assert len(names) > 4
    assert len(set(names)) == len(names)


def test_crash_a_step_cut_short_inside_an_inner_loop_shows_nothing(tmp_path: Path) -> None:
    """At several points; then it runs again, and gives what an undisturbed one gives."""
    plan = Drawing(5).recursion(2)
    history = random_history(TU, 5, times=5, changes=2)
    with in_process(tmp_path, TU, history) as of:
        bounds = [*history.times[1:], history.last + 1]
        _, updates = interrupted(of, of.describe(plan), bounds)
    for time in history.times:
        expected = answer(plan, {GET_T.id: Counter(history.rows_at("t", time))})
        assert contents(updates, time) == (expected, {}), f"at {time}"
