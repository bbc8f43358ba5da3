"""The answer of a plan of a few kinds of nodes at one time, computed from whole tables: an oracle without Spark.

Nodes: Get, Let, LetRec, Union, Negate, Threshold, Mfp that projects, Reduce that counts or makes distinct, linear joins
of two inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import (
    DistinctReduce,
    Get,
    Join,
    Let,
    LetRec,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Threshold,
    Union,
)

Row = tuple[Any, ...]
NOW = GlobalId("now()")
"""The name whose one row is the time, for plans that read the clock."""
Rows = Mapping[Row, int]
"""Rows, each with its multiplicity."""
Meanings = Mapping[GlobalId | LocalId, Rows]


def answer(plan: Plan, names: Meanings) -> Rows:
    """The rows of a plan, of whose free names these are the rows."""
    match plan:
        case Get(id):
            return names[id]
        case Let(id, value, body):
            return answer(body, {**names, id: answer(value, names)})
        case LetRec(_, body):
            return answer(body, _iterated(plan, names))
        case Union(inputs):
            return _sum(entry for each in inputs for entry in answer(each, names).items())
        case Negate(input):
            return {row: -n for row, n in answer(input, names).items()}
        case Threshold(input):
            return {row: n for row, n in answer(input, names).items() if n > 0}
        case Mfp(input, mfp):
            rows = answer(input, names)
            if mfp.lower or mfp.upper:
                ((now,),) = names[NOW]
                rows = {row: n for row, n in rows.items() if _is_there(row, mfp, now)}
            return _sum((_projected(row, mfp), n) for row, n in rows.items())
        case Reduce():
            return _reduced(plan, answer(plan.input, names))
        case Join((left, right), LinearJoin(0)):
            return _joined(plan, answer(left, names), answer(right, names))
    raise NotImplementedError(f"{type(plan).__name__}")


def _sum(entries: Iterable[tuple[Row, int]]) -> Rows:
    rows: Counter[Row] = Counter()
    for row, n in entries:
        rows[row] += n
    return {row: n for row, n in rows.items() if n}


def _iterated(plan: LetRec, names: Meanings) -> Meanings:
    """The bindings from empty, in rounds, until a round changes none, or so often as the limit allows."""
    now = {**names, **{binding.id: {} for binding in plan.bindings}}
    rounds = 0
    while True:
        before = dict(now)
        for binding in plan.bindings:
            now[binding.id] = answer(binding.value, now)
        rounds += 1
        if now == before or rounds == plan.bindings[0].max_iterations:
            return now


def _projected(row: Row, mfp: MapFilterProject) -> Row:
    assert not mfp.expressions, "a projection alone"
    assert not mfp.predicates, "a projection alone"
    return row if mfp.projection is None else _at(row, mfp.projection)


def _is_there(row: Row, mfp: MapFilterProject, now: int) -> bool:
    lower, upper = ([_integer(row, bound) for bound in side] for side in (mfp.lower, mfp.upper))
    return all(b is not None and b <= now for b in lower) and all(b is not None and now < b for b in upper)


def _integer(row: Row, expr: ScalarExpr) -> int | None:
    """A column, or a column and a number."""
    match expr:
        case ColumnRef(index):
            value: int | None = row[index]
            return value
        case Call("+", (column, Literal(value))):
            of = _integer(row, column)
            return None if of is None else of + int(value)
    raise NotImplementedError(f"{expr}")


def _reduced(plan: Reduce, rows: Rows) -> Rows:
    groups = _sum((_at(row, _columns(plan.key)), n) for row, n in rows.items())
    made = ((key if isinstance(plan.plan, DistinctReduce) else (*key, n), 1) for key, n in groups.items())
    return _sum((_projected(row, plan.mfp_after), n) for row, n in made)


def _joined(plan: Join, left: Rows, right: Rows) -> Rows:
    assert isinstance(plan.plan, LinearJoin)
    (stage,) = plan.plan.stages
    found = []
    for row, n in left.items():
        for other, m in right.items():
            keys = zip(_at(row, _columns(stage.stream_key)), _at(other, _columns(stage.lookup_key)), strict=True)
            if all(a == b and (a is not None or at in stage.null_safe) for at, (a, b) in enumerate(keys)):
                both = (*_at(row, stage.stream_thinning), *_at(other, stage.lookup_thinning))
                found.append((_projected(both, stage.closure), n * m))
    return _sum(found)


def _columns(key: Iterable[ScalarExpr]) -> list[int]:
    columns = list[int]()
    for each in key:
        assert isinstance(each, ColumnRef), "a key of columns"
        columns.append(each.index)
    return columns


def _at(row: Row, columns: Iterable[int]) -> Row:
    return tuple(row[c] for c in columns)
