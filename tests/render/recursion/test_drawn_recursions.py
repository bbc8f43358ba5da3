"""Drawn plans with names and recursions inside each other show, at every time, what their tables then give."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tests.oracle.batches import answer
from tests.oracle.harness import contents
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, counted, distinct, project
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process
from tests.render.sharing.test_shared_arrangements import ands, join
from tidemark_planner.lir.shared_arrangements import share_arrangements
from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.lir import Get, Let, LetRec, Plan, RecursiveBinding, Union, refs

BOTH = project(GET_T, 0, 1)
LEAVES = (BOTH, project(GET_T, 1, 0), counted(GET_T))
ROUNDS = 3


class Drawing:
    """Plans of two integers a row, which read the table t."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._numbers = count()

    def plan(self, depth: int, bound: tuple[Get, ...] = ()) -> Plan:
        """A plan that may read these bindings; one that is bound is as likely as a leaf."""
        kind = int(self._rng.integers(0, 9)) if depth else 0
        if kind == 0:
            choice = (*LEAVES, *bound, *bound)
            return choice[int(self._rng.integers(0, len(choice)))]
        if kind <= 4:
            on = (int(self._rng.integers(0, 2)), int(self._rng.integers(0, 2)))
            return project(join(self.plan(depth - 1, bound), self.plan(depth - 1, bound), [on]), 0, 1)
        if kind == 5:
            name = Get(LocalId(f"x{next(self._numbers)}"), BOTH.schema)
            return Let(name.id, self.plan(depth - 1, bound), self.plan(depth, (*bound, name)))
        if kind in (6, 7):
            return self._recursion(depth, bound)
        return ands(self.plan(depth - 1, bound), self.plan(depth - 1, bound))

    def _recursion(self, depth: int, bound: tuple[Get, ...]) -> Plan:
        name = Get(LocalId(f"r{next(self._numbers)}"), BOTH.schema)
        start = self.plan(depth - 1, (*bound, name) if self._rng.integers(0, 2) else bound)
        value = distinct(Union((start, project(join(BOTH, name, [(0, 0)]), 0, 1))), *refs(BOTH.schema))
        limit = ROUNDS if self._rng.integers(0, 2) else None
        binding = RecursiveBinding(name.id, value, limit, limit is not None)
        return LetRec((binding,), self.plan(depth, (*bound, name)))


@pytest.mark.broad
@pytest.mark.parametrize("part", range(8))
def test_oracle_a_drawn_recursion_shows_its_rounds(part: int, tmp_path: Path) -> None:
    """With what joins share, in a step for each time: in many of them some part of the plan has no updates."""
    for seed in range(5 * part, 5 * part + 5 * len(seeds(1))):
        drawing = Drawing(seed)
        plan = share_arrangements(ands(drawing.plan(2), drawing.plan(2)))
        history = random_history(TU, seed, changes=2)
        with in_process(tmp_path / str(seed), TU, history) as of:
            updates = of.run(of.describe(plan), [*history.times[1:], history.last + 1])
        for time in history.times:
            expected = answer(plan, {GET_T.id: Counter(history.rows_at("t", time))})
            assert contents(updates, time) == (expected, {}), f"plan {seed} at {time}"
