"""The linear plan of an n-ary join: the order of the inputs, the keys, and the columns that each stage keeps.

    inputs t, u, v on [t.k = u.k, u.z = v.z, t.x < v.y]

    t  →  u on [t.k = u.k] keep [t.x | u.z]  →  v on [u.z = v.z] keep [t.x | v.y] filter (t.x < v.y)

The first input is met by the others in the order that `order` prefers. A cross join is made only where nothing
connects. A stage uses all equalities as its key. An index serves it without a copy where they all are on its key, or
where its key is unique: the other equalities are filters then. A predicate runs at the first stage that has its
columns. One that can fail runs at the last stage, on rows that passed the whole join. Columns are dropped as soon as
nothing later reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from tidemark_planner.lir.joins.equalities import KeyEquality, equalities, equalities_by_input, equalities_on_index
from tidemark_planner.lir.joins.inputs import JoinProblem
from tidemark_planner.lir.joins.order import PossibleLookup, Preference, fewest_rows, next_lookup
from tidemark_planner.lir.mfp import FilterProject, mfp_of
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr, columns_of, map_columns
from tidemark_protocol.plan.lir import Join, JoinStage, LinearJoin, MapFilterProject, Schema, refs


def linear_join(problem: JoinProblem, prefer: Preference = fewest_rows) -> Join:
    """Join the inputs one after the other."""
    return _Planner(problem, prefer).plan()


def lookups_after_each(problem: JoinProblem) -> list[list[PossibleLookup]]:
    """The lookups that follow each input, if it is the first."""
    planner = _Planner(problem, fewest_rows)
    return [planner.lookups(first) for first in range(len(problem.inputs))]


class _Planner:
    def __init__(self, problem: JoinProblem, prefer: Preference) -> None:
        self._problem, self._prefer = problem, prefer
        self._inputs, self._schema, self._after = problem.inputs, problem.schema, problem.after
        self._columns, self._row = problem.columns, refs(problem.schema)
        self._index_keys, self._unique = problem.indexed, problem.unique
        self._candidates = equalities_by_input(equalities(problem.predicates), problem.columns)
        # Predicates that no stage has applied yet.
        self._waiting = list(problem.predicates)

    def plan(self) -> Join:
        order = [0, *(lookup.input for lookup in self.lookups(0))]
        stream = sorted(self._columns[order[0]])
        stages = []
        for at, lookup in enumerate(order[1:], start=2):
            source = order[0] if at == 2 else None
            stage, stream = self._stage(stream, source, lookup, is_last=at == len(order))
            stages.append(stage)
        return Join(self._inputs, LinearJoin(order[0], tuple(stages)))

    def lookups(self, first: int) -> list[PossibleLookup]:
        """The lookups of the other inputs, in the order in which they follow the input `first`."""
        order, known, left = [], self._columns[first], [i for i in range(len(self._inputs)) if i != first]
        while left:
            chosen = next_lookup([self._lookup(known, i) for i in left], self._prefer)
            order.append(chosen)
            known |= self._columns[chosen.input]
            left.remove(chosen.input)
        return order

    def _lookup(self, known: frozenset[int], at: int) -> PossibleLookup:
        """An input as the next one. All its equalities hold for the rows that are met, on an index or as filters."""
        possible = self._key_equalities(known, at)
        bound = frozenset(m.lookup.index for m in possible if isinstance(m.lookup, ColumnRef))
        met = frozenset(m.stream.index for m in possible if isinstance(m.stream, ColumnRef))
        return PossibleLookup(
            at,
            len(possible),
            any(bound.issuperset(key) for key in self._problem.row_keys[at]),
            bool(self._on_index(possible, at, "lookup")),
            self._problem.known_rows(at),
            self._problem.values_of(met),
        )

    def _key_equalities(self, known: frozenset[int], lookup: int) -> list[KeyEquality]:
        return [m for e in self._candidates[lookup] if (m := e.between(known, self._columns[lookup]))]

    def _on_index(self, possible: list[KeyEquality], input: int, side: str) -> list[KeyEquality] | None:
        """The equalities on the key of an index of an input; None if no index of it serves the lookup."""
        return equalities_on_index(possible, self._index_keys[input], side, self._unique)

    def _stage_key(self, possible: list[KeyEquality], source: int | None, lookup: int) -> list[KeyEquality]:
        """The equalities of a stage: those on the key of an index that serves either side, else all."""
        on_lookup = self._on_index(possible, lookup, "lookup")
        on_stream = None if source is None else self._on_index(possible, source, "stream")
        return on_lookup or on_stream or possible

    def _stage(self, stream: list[int], source: int | None, lookup: int, is_last: bool) -> tuple[JoinStage, list[int]]:
        """The stage that looks up `lookup`, and the columns of the stream after it (as positions in all columns).

        `source`: the input that the stream is at the first stage.
        """
        known, new = frozenset(stream), self._columns[lookup]
        possible = [m for m in self._key_equalities(known, lookup) if m.predicate in self._waiting]
        used = self._stage_key(possible, source, lookup)
        for equality in used:
            self._waiting.remove(equality.predicate)
        now = [p for p in self._waiting if is_last or (columns_of(p) <= known | new and not is_fallible(p))]
        self._waiting = [p for p in self._waiting if p not in now]
        later = self._read_later()
        kept = later.union(*(columns_of(p) for p in now))

        def closure(both: list[int]) -> MapFilterProject:
            if is_last:
                return closure_over(self._schema, both, (*now, *self._after.predicates), self._after.outputs)
            return closure_over(self._schema, both, now, [self._row[c] for c in both if c in later])

        stage, both = stage_of(lookup, used, stream, sorted(new), kept, closure)
        return stage, [c for c in both if c in later]

    def _read_later(self) -> frozenset[int]:
        return frozenset[int]().union(*(columns_of(e) for e in (*self._waiting, *self._after.all_expressions)))


def stage_of(
    lookup: int,
    used: Sequence[KeyEquality],
    stream: list[int],
    met: list[int],
    needed: Set[int],
    closure: Callable[[list[int]], MapFilterProject],
) -> tuple[JoinStage, list[int]]:
    """The stage that looks up an input, whose columns are `met`, and the columns that the stage keeps: the `needed`
    ones of the stream and of the input. Its closure is over these."""
    stream_kept, lookup_kept = [c for c in stream if c in needed], [c for c in met if c in needed]
    both = stream_kept + lookup_kept
    stage = JoinStage(
        lookup,
        _over_row((m.stream for m in used), stream),
        _over_row((m.lookup for m in used), met),
        tuple(map(stream.index, stream_kept)),
        tuple(map(met.index, lookup_kept)),
        closure(both),
        tuple(n for n, m in enumerate(used) if m.null_safe),
    )
    return stage, both


def closure_over(
    schema: Schema, row: Sequence[int], predicates: Sequence[ScalarExpr], outputs: Sequence[ScalarExpr]
) -> MapFilterProject:
    """The predicates and outputs, which are over all columns of the join, over rows that hold the columns `row`."""
    fused = FilterProject(_over_row(predicates, row), _over_row(outputs, row))
    return mfp_of(tuple(schema[c] for c in row), fused)


def _over_row(exprs: Iterable[ScalarExpr], row: Sequence[int]) -> tuple[ScalarExpr, ...]:
    place = {c: at for at, c in enumerate(row)}
    return tuple(map_columns(expr, place.__getitem__) for expr in exprs)
