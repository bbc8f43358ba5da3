"""The upkeep that `explain` shows is what a replica does: what keeps state has an arrangement, all else has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.oracle.histories import Table
from tests.render.test_operators import BY_HAND, lowered
from tidemark_protocol.plan.change_costs import STATELESS, upkeep_of
from tidemark_protocol.plan.lir import Let, LetRec, Plan, inputs_of


def operators(plan: Plan) -> Iterator[Plan]:
    """All of the plan, a recursion as one."""
    yield plan
    for below in (plan.body,) if isinstance(plan, LetRec) else inputs_of(plan):
        yield from operators(below)


@pytest.mark.parametrize(("name", "plan", "tables"), BY_HAND, ids=[name for name, _, _ in BY_HAND])
def test_agree_upkeep_and_arrangements(name: str, plan: Plan, tables: Mapping[str, Table], tmp_path: Path) -> None:
    """The test has every kind of plan, but for its index, and bindings that joins read by a key."""
    fragments, _ = lowered(tmp_path, plan, tables)
    kept = [each for each in fragments.arrangements if not each.endswith(("-index", "-arranged"))]
    upkeep = [upkeep_of(each, lambda _: None) for each in operators(plan)]
    assert [each for each in upkeep if each is None] == [None for each in operators(plan) if isinstance(each, Let)]
    assert bool(kept) == any(each is not None and each.how != STATELESS for each in upkeep), (name, kept, upkeep)
