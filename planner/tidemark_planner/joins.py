"""The linear plan of an n-ary join: in which order inputs meet, by which keys, and what is kept on the way.

    inputs t, u, v on [t.k = u.k, u.z = v.z, t.x < v.y]

    t  →  u on [t.k = u.k] keep [t.x | u.z]  →  v on [u.z = v.z] keep [t.x | v.y] filter (t.x < v.y)

Inputs keep the query's order, but one that an equality connects to those before it comes first: a cross join is made
only where nothing connects. A predicate runs at the first stage that has its columns; one that can fail runs at the
last, on rows that the whole join has let through. Columns are dropped as soon as nothing later reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_planner.mfp import Fused, mfp_of
from tidemark_protocol.expr import Call, ScalarExpr, columns_of, map_columns
from tidemark_protocol.functions import is_fallible
from tidemark_protocol.lir import Join, JoinStage, LinearJoin, MapFilterProject, Plan, Schema, refs


@dataclass(frozen=True)
class _Equality:
    """`left = right` (or `<=>`), where each side reads inputs of its own."""

    predicate: ScalarExpr
    left: ScalarExpr
    right: ScalarExpr
    null_safe: bool

    def sides(self, known: frozenset[int], new: frozenset[int]) -> tuple[ScalarExpr, ScalarExpr] | None:
        """(side over known columns, side over new ones), or None where it connects something else."""
        for one, other in ((self.left, self.right), (self.right, self.left)):
            if columns_of(one) <= known and columns_of(other) <= new and columns_of(one) and columns_of(other):
                return one, other
        return None


def linear_join(inputs: Sequence[Plan], predicates: Sequence[ScalarExpr], after: Fused) -> Plan:
    """Join the inputs; `predicates` and `after` are over all their columns side by side."""
    return _Planner(inputs, predicates, after).plan()


class _Planner:
    def __init__(self, inputs: Sequence[Plan], predicates: Sequence[ScalarExpr], after: Fused) -> None:
        self._inputs = tuple(inputs)
        self._schema: Schema = tuple(c for i in inputs for c in i.schema)
        self._columns = _column_sets(inputs)
        self._equalities = [e for p in predicates if (e := _equality(p)) is not None]
        self._after = after
        # Predicates that no stage has applied yet.
        self._waiting = list(predicates)

    def plan(self) -> Plan:
        order = self._order()
        stream = sorted(self._columns[order[0]])
        stages = []
        for at, lookup in enumerate(order[1:], start=2):
            stage, stream = self._stage(stream, lookup, is_last=at == len(order))
            stages.append(stage)
        return Join(self._inputs, LinearJoin(order[0], tuple(stages)))

    def _order(self) -> list[int]:
        """The query's order, connected inputs first."""
        order, left = [0], list(range(1, len(self._inputs)))
        while left:
            known = frozenset[int]().union(*(self._columns[i] for i in order))
            connected = (i for i in left if any(e.sides(known, self._columns[i]) for e in self._equalities))
            chosen = next(connected, left[0])
            order.append(chosen)
            left.remove(chosen)
        return order

    def _stage(self, stream: list[int], lookup: int, is_last: bool) -> tuple[JoinStage, list[int]]:
        """The stage that meets `lookup`, and the columns of the stream after it (as positions in all columns)."""
        known, new = frozenset(stream), self._columns[lookup]
        used = [(e, sides) for e in self._equalities if (sides := e.sides(known, new)) and e.predicate in self._waiting]
        for equality, _ in used:
            self._waiting.remove(equality.predicate)
        now = [p for p in self._waiting if is_last or (columns_of(p) <= known | new and not is_fallible(p))]
        self._waiting = [p for p in self._waiting if p not in now]
        later = self._read_later()
        kept = later.union(*(columns_of(p) for p in now))
        stream_kept = [c for c in stream if c in kept]
        lookup_kept = [c for c in sorted(new) if c in kept]
        both = stream_kept + lookup_kept
        closure = self._last_closure(both, now) if is_last else self._closure(both, now, later)
        stage = JoinStage(
            lookup,
            tuple(_moved(one, stream) for _, (one, _) in used),
            tuple(_moved(other, sorted(new)) for _, (_, other) in used),
            tuple(stream.index(c) for c in stream_kept),
            tuple(sorted(new).index(c) for c in lookup_kept),
            closure,
            tuple(n for n, (e, _) in enumerate(used) if e.null_safe),
        )
        return stage, [c for c in both if c in later]

    def _read_later(self) -> frozenset[int]:
        return frozenset[int]().union(*(columns_of(e) for e in (*self._waiting, *self._after.all_expressions)))

    def _closure(self, both: list[int], now: list[ScalarExpr], later: frozenset[int]) -> MapFilterProject:
        schema = tuple(self._schema[c] for c in both)
        outputs = tuple(ref for ref, c in zip(refs(schema), both, strict=True) if c in later)
        return mfp_of(schema, Fused(tuple(_moved(p, both) for p in now), outputs))

    def _last_closure(self, both: list[int], now: list[ScalarExpr]) -> MapFilterProject:
        schema = tuple(self._schema[c] for c in both)
        predicates = tuple(_moved(p, both) for p in (*now, *self._after.predicates))
        return mfp_of(schema, Fused(predicates, tuple(_moved(o, both) for o in self._after.outputs)))


def _equality(predicate: ScalarExpr) -> _Equality | None:
    if not isinstance(predicate, Call) or predicate.function not in ("=", "<=>") or is_fallible(predicate):
        return None
    left, right = predicate.arguments
    return _Equality(predicate, left, right, predicate.function == "<=>")


def _column_sets(inputs: Sequence[Plan]) -> list[frozenset[int]]:
    sets, start = [], 0
    for each in inputs:
        sets.append(frozenset(range(start, start + len(each.schema))))
        start += len(each.schema)
    return sets


def _moved(expr: ScalarExpr, row: Sequence[int]) -> ScalarExpr:
    """The expression over a row that holds the columns `row`."""
    return map_columns(expr, {c: at for at, c in enumerate(row)}.__getitem__)
