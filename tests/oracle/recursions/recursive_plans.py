"""Recursions as plans written by hand, and their fixpoints computed in Python.

edges e(a, b, w)     few nodes, so that paths close to cycles, meet, and go away again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracle.histories import Table
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    Constant,
    ConstantRow,
    DistinctReduce,
    Get,
    HierarchicalReduce,
    Join,
    JoinStage,
    LetRec,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    OrderKey,
    Plan,
    RecursiveBinding,
    Reduce,
    Schema,
    Threshold,
    TopK,
    TopKPlan,
    Union,
    refs,
)
from tidemark_protocol.types import BIGINT, ColumnType, SqlType

Rows = Counter[tuple[Any, ...]]
E = Table((("a", "bigint"), ("b", "bigint"), ("w", "bigint")), ([1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 1, 2, 5]))
DAG = Table(E.columns, ([1, 2, 3], [4, 5], [1, 2, 3]))
GET_E = Get(GlobalId("e"), E.schema)
PAIR: Schema = (ColumnType(BIGINT), ColumnType(BIGINT))
X, Y = Get(LocalId("x"), PAIR), Get(LocalId("y"), PAIR)


@dataclass(frozen=True)
class Recursion:
    """A plan, or SQL, over `e`, and its rows as a function of e's (None: an error is shown)."""

    name: str
    query: Plan | str
    expected: Callable[[Rows], Rows | None]
    table: Table = E
    changes: int = 4


def project(plan: Plan, *columns: int) -> Plan:
    return Mfp(plan, MapFilterProject(plan.schema, projection=columns))


def mapped(plan: Plan, *exprs: ScalarExpr) -> Plan:
    width = len(plan.schema)
    return Mfp(plan, MapFilterProject(plan.schema, exprs, projection=tuple(range(width, width + len(exprs)))))


def distinct(plan: Plan) -> Plan:
    return Reduce(plan, refs(plan.schema), (), DistinctReduce(), MapFilterProject.identity(plan.schema))


def union(*plans: Plan) -> Plan:
    return Union(plans)


def meet(left: Plan, right: Plan, on: tuple[int, int], *kept: ScalarExpr | int) -> Plan:
    """Rows that agree in a column each, and of both side by side some columns or expressions."""
    both = left.schema + right.schema
    exprs = tuple(k for k in kept if not isinstance(k, int))
    made = iter(range(len(both), len(both) + len(exprs)))
    shown = tuple(k if isinstance(k, int) else next(made) for k in kept)
    wide = (tuple(range(len(left.schema))), tuple(range(len(right.schema))))
    keys = ((refs(left.schema)[on[0]],), (refs(right.schema)[on[1]],))
    stage = JoinStage(1, *keys, *wide, MapFilterProject(both, exprs, projection=shown))
    return Join((left, right), LinearJoin(0, (stage,)))


def recursion(body: Plan, *bindings: RecursiveBinding) -> Plan:
    return LetRec(bindings, body)


def binds(name: str, value: Plan, limit: int | None = None, *, returns: bool = False) -> RecursiveBinding:
    return RecursiveBinding(LocalId(name), value, limit, returns)


def integer(value: int) -> Literal:
    return Literal(str(value), BIGINT)


def plus(left: ScalarExpr, right: ScalarExpr) -> ScalarExpr:
    return call("+", (left, right), BIGINT)


def column(at: int, of: SqlType = BIGINT) -> ColumnRef:
    return ColumnRef(at, of)


def fixpoint(step: Callable[[Any], Any], start: Any, rounds: int = 1000) -> Any:
    """step(step(... start)), until nothing changes, or so many times."""
    for _ in range(rounds):
        after = step(start)
        if after == start:
            return after
        start = after
    return start


def once(rows: Mapping[Any, int]) -> Rows:
    """Each row that is there, once."""
    return Counter({row: 1 for row, n in rows.items() if n})


def closure(edges: Rows) -> Rows:
    pairs = {(a, b) for a, b, _ in edges}
    found: set[tuple[int, int]] = fixpoint(lambda x: pairs | {(a, d) for a, b in x for c, d in pairs if b == c}, set())
    return Counter(found)


def walks(edges: Rows, start: Rows, steps: int | None) -> Rows:
    """All walks from `start` by edges, with multiplicities: (end, length)."""
    made, now, length = Counter(start), Counter(start), 0
    while now and (steps is None or length < steps):
        after: Rows = Counter()
        for (node, n), many in now.items():
            for (a, b, _), each in edges.items():
                if a == node:
                    after[b, n + 1] += many * each
        made.update(after)
        now, length = after, length + 1
    return made


EDGES = project(GET_E, 0, 1)
REACH = distinct(union(EDGES, meet(X, EDGES, (1, 0), 0, 3)))
REACH_BY_SQUARES = distinct(union(EDGES, meet(X, X, (1, 0), 0, 3)))
FROM_ONE = Constant((ConstantRow((integer(1), integer(0))),), (ColumnType(BIGINT), ColumnType(BIGINT)))
WALK = union(FROM_ONE, meet(X, GET_E, (0, 0), 3, plus(column(1), integer(1))))


def alternating(edges: Rows) -> Rows:
    """Nodes that walks from 1 reach after an even number of steps."""
    pairs = {(a, b) for a, b, _ in edges}
    even: set[int] = fixpoint(
        lambda x: {1} | {d for n in x for a, b in pairs if a == n for c, d in pairs if b == c}, set()
    )
    return Counter((n, 0) for n in even)


def won(edges: Rows) -> Rows:
    """Nodes with an edge to a node that is not won: the winning positions, along a graph without cycles."""
    pairs = {(a, b) for a, b, _ in edges}
    found: set[int] = fixpoint(lambda x: {a for a, b in pairs if b not in x}, set())
    return Counter((n, n) for n in found)


def totals(edges: Rows) -> Rows:
    """For each node how many walks end at it, counting the one that stays: by sums over sums."""
    nodes = {n for a, b, _ in edges for n in (a, b)}

    def step(x: dict[int, int]) -> dict[int, int]:
        return {n: 1 + sum(many * x.get(a, 0) for (a, b, _), many in edges.items() if b == n) for n in nodes}

    return Counter(dict.fromkeys(fixpoint(step, {}).items(), 1))


NODES = distinct(union(project(GET_E, 0), project(GET_E, 1)))
SUM = AggregateExpr("sum", 0, ColumnType(BIGINT))
TOTALS = Reduce(
    union(mapped(NODES, column(0), integer(1)), meet(X, EDGES, (0, 0), 3, 1)),
    (column(0),),
    (column(1),),
    AccumulableReduce((SUM,)),
    MapFilterProject.identity(PAIR),
)


def distances(edges: Rows) -> Rows:
    """For each node that 1 reaches, the least sum of weights on a way to it."""

    def step(x: dict[int, int]) -> dict[int, int]:
        found = {1: 0}
        for a, b, w in edges:
            if a in x:
                found[b] = min(found.get(b, x[a] + w), x[a] + w)
        return found

    return Counter(dict.fromkeys(fixpoint(step, {}).items(), 1))


WAYS = union(FROM_ONE, meet(X, GET_E, (0, 0), 3, plus(column(1), column(4))))
SHORTEST = Reduce(
    WAYS,
    (column(0),),
    (column(1),),
    HierarchicalReduce((AggregateExpr("min", 0, ColumnType(BIGINT)),)),
    MapFilterProject.identity(PAIR),
)
FIRST_WAY = TopK(WAYS, (0,), (OrderKey(1),), integer(1), 0, TopKPlan())
MOVES = mapped(EDGES, column(0), column(1))
LOST_TARGETS = Threshold(
    union(
        distinct(project(EDGES, 1, 1)),
        Negate(X),
    )
)

RECURSIONS = (
    Recursion("closure", recursion(X, binds("x", REACH)), closure, changes=5),
    Recursion("closure by squares", recursion(X, binds("x", REACH_BY_SQUARES)), closure, changes=5),
    Recursion(
        "closure, counted",
        recursion(
            Reduce(
                X,
                (column(0),),
                (),
                AccumulableReduce((AggregateExpr("count", None, ColumnType(BIGINT, False)),)),
                MapFilterProject.identity((PAIR[0], ColumnType(BIGINT, False))),
            ),
            binds("x", REACH),
        ),
        lambda e: Counter(Counter(a for a, _ in closure(e)).items()),
    ),
    Recursion(
        "even and odd",
        recursion(
            Y,
            binds("x", distinct(meet(Y, EDGES, (0, 0), 3, 1))),
            binds("y", distinct(union(FROM_ONE, meet(X, EDGES, (0, 0), 3, 1)))),
        ),
        alternating,
    ),
    Recursion("walks", recursion(X, binds("x", WALK)), lambda e: walks(e, Counter({(1, 0): 1}), None), DAG),
    Recursion(
        "walks of at most three steps",
        recursion(X, binds("x", WALK, 4, returns=True)),
        lambda e: walks(e, Counter({(1, 0): 1}), 3),
        changes=3,
    ),
    Recursion(
        "an error for the fourth step",
        recursion(X, binds("x", WALK, 4)),
        lambda e: walks(e, Counter({(1, 0): 1}), 2) if is_done(e, 2) else None,
        changes=3,
    ),
    Recursion(
        "winning",
        recursion(X, binds("x", distinct(meet(MOVES, LOST_TARGETS, (1, 0), 0, 0)))),
        won,
        DAG,
    ),
    Recursion("shortest ways by min", recursion(X, binds("x", SHORTEST)), distances),
    Recursion("shortest ways by top-1", recursion(X, binds("x", FIRST_WAY)), distances),
    Recursion("totals", recursion(X, binds("x", TOTALS)), totals, DAG),
    Recursion(
        "quotients on the way",
        recursion(
            X,
            binds(
                "x", distinct(union(FROM_ONE, meet(X, GET_E, (0, 0), 3, call("div", (integer(10), column(4)), BIGINT))))
            ),
        ),
        lambda e: quotients(e),
    ),
)

ENDLESS = recursion(X, binds("x", union(EDGES, meet(X, EDGES, (1, 0), 0, 3))))


def is_done(edges: Rows, steps: int) -> bool:
    start: Rows = Counter({(1, 0): 1})
    return walks(edges, start, steps) == walks(edges, start, steps + 1)


def quotients(edges: Rows) -> Rows | None:
    """10 div w of the last edge on the way from 1; an error as soon as an edge of weight 0 is met."""
    met: set[tuple[int, int]] = {(1, 0)}

    def step(x: set[tuple[int, int]]) -> set[tuple[int, int]]:
        return {(1, 0)} | {(b, 10 // w) for n, _ in x for a, b, w in edges if a == n and w}

    met = fixpoint(step, met)
    if any(a == n and w == 0 for n, _ in met for a, _, w in edges):
        return None
    return Counter(met)
