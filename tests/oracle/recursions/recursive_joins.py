"""Recursions through delta joins: inside a loop a path of theirs is a linear join of the same rows."""

from __future__ import annotations

from collections import Counter

from tests.oracle.recursions.recursive_plans import (
    EDGES,
    Recursion,
    Rows,
    X,
    binds,
    distinct,
    fixpoint,
    recursion,
    union,
)
from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import JoinProblem
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.lir import Plan, refs
from tidemark_protocol.types import BOOLEAN


def two_steps() -> Plan:
    """x (a, b), edges (b, c), edges (c, d): (a, d) where a < d."""
    row = refs(X.schema * 3)
    equal = (call("=", (row[1], row[2]), BOOLEAN), call("=", (row[3], row[4]), BOOLEAN))
    ascend = call("<", (row[0], row[5]), BOOLEAN)
    made = delta_join(JoinProblem((X, EDGES, EDGES), ((),) * 3, equal, FilterProject((ascend,), (row[0], row[5]))))
    assert made is not None
    return made


def odd_walks(edges: Rows) -> Rows:
    """Pairs of nodes that are an edge, or go on from such a pair by two edges to a greater node."""
    pairs = {(a, b) for a, b, _ in edges}
    found: set[tuple[int, int]] = fixpoint(
        lambda x: pairs | {(a, e) for a, b in x for c, d in pairs if b == c for f, e in pairs if d == f and a < e},
        set(),
    )
    return Counter(found)


JOINS = (Recursion("two steps at once", recursion(X, binds("x", distinct(union(EDGES, two_steps())))), odd_walks),)
