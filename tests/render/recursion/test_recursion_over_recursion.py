"""A recursion over what another leads to: what enters the outer loop has a loop of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.harness import contents
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.recursions.recursive_plans import (
    EDGES,
    GET_E,
    REACH,
    E,
    Rows,
    X,
    Y,
    binds,
    closure,
    distinct,
    fixpoint,
    meet,
    recursion,
    union,
)
from tests.oracle.seeds import seeds
from tests.oracle.variants.in_process import in_process
from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.lir import Get, Let, Plan

LED_TO = recursion(meet(X, GET_E, (0, 2), 0, 1), binds("x", REACH))
"""Pairs of the closure that begin at what is a weight as well: often there are none, while the closure changes."""
NAMED = Get(LocalId("led"), LED_TO.schema)


def next_rows(over: Plan) -> Plan:
    return distinct(union(over, meet(Y, EDGES, (1, 0), 0, 3)))


def walked_on(edges: Rows) -> Rows:
    """The pairs that LED_TO has, and those that edges lead to from them."""
    pairs, weights = {(a, b) for a, b, _ in edges}, {w for _, _, w in edges}
    start = {(a, b) for a, b in closure(edges) if a in weights}
    found: set[tuple[int, int]] = fixpoint(lambda x: start | {(a, d) for a, b in x for c, d in pairs if b == c}, set())
    return Counter(found)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(
    "plan",
    [
        recursion(Y, binds("y", next_rows(LED_TO))),
        Let(NAMED.id, LED_TO, recursion(Y, binds("y", next_rows(NAMED)))),
        recursion(Y, binds("y", next_rows(Let(NAMED.id, LED_TO, NAMED)))),
    ],
    ids=["inside", "named before", "named inside"],
)
def test_oracle_a_recursion_over_another_is_not_mixed_with_it(plan: Plan, seed: int, tmp_path: Path) -> None:
    """At every time, in small steps: in some of them the inner loop alone has updates."""
    history = random_history({"e": E}, seed, times=8, changes=2)
    with in_process(tmp_path, {"e": E}, history) as of:
        for bounds in ([*history.times[1:], history.last + 1], random_bounds(history, seed)):
            updates = of.run(of.describe(plan), bounds)
            for time in history.times:
                expected = walked_on(Counter(history.rows_at("e", time)))
                assert contents(updates, time) == (expected, {}), f"at {time}"
