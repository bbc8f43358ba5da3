"""The problem that a join solves: inputs, existing arrangements of them, predicates and outputs over all columns.

    candidate   Mfp filter (x > 1) project [k, y]  ──as its index has it──►  Get i1 (all columns), indexed by [k]
                  Get i1                                                     the filter becomes the join's

An existing arrangement costs nothing, so an input is read in the form of its index wherever a lookup can use the key of
the index. Projections and filters below the join then move above it (they cannot fail there either).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tidemark_planner.hir.nodes import starts
from tidemark_planner.lir.joins.order import KnownRows
from tidemark_planner.lir.mfp import FilterProject
from tidemark_planner.rules.scalar import substitute
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr, shift_columns
from tidemark_protocol.plan.lir import Get, Join, LinearJoin, Plan, Schema, refs

# The columns by which an input is arranged.
Key = tuple[int, ...]


@dataclass(frozen=True)
class IndexedInput:
    """An input in the form of its indexes: `gets` name indexes of one collection, arranged by `keys`; `row` makes the
    input of its rows.

    `unique_keys`: those of `keys` that have one row at most. A lookup uses another only where no equality is left for a
    filter. `row_keys`: all columns of the collection that no two rows share.
    """

    gets: tuple[Get, ...]
    keys: tuple[Key, ...]
    row: FilterProject
    unique_keys: frozenset[Key] = frozenset()
    row_keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class PlannedInput:
    """An input as `plan`, or as `indexed` where the collection that it reads has indexes."""

    plan: Plan
    indexed: IndexedInput | None = None
    known: KnownRows = KnownRows()


@dataclass(frozen=True)
class JoinProblem:
    """Inputs, the keys of the existing arrangements of each, and predicates and outputs over all columns.

    `unique_keys`: the keys, of each input's existing arrangements, that have one row at most. `known`: what the
    planner knows of each input's rows.
    """

    inputs: tuple[Plan, ...]
    index_keys: tuple[tuple[Key, ...], ...]
    predicates: tuple[ScalarExpr, ...]
    after: FilterProject
    unique_keys: tuple[frozenset[Key], ...] = ()
    known: tuple[KnownRows, ...] = ()

    def known_rows(self, at: int) -> KnownRows:
        """The planner's knowledge of the rows of an input."""
        return self.known[at] if self.known else KnownRows()

    def read_rows(self, at: int) -> KnownRows:
        """The planner's knowledge of an input's rows as the join reads them: with an index, filters run later."""
        known = self.known_rows(at)
        return replace(known, share=0, is_one=known.is_one and not known.share) if self.index_keys[at] else known

    @property
    def schema(self) -> Schema:
        return tuple(c for i in self.inputs for c in i.schema)

    @property
    def indexed(self) -> list[list[Key]]:
        """The keys of each input, as positions in all columns."""
        return [
            [tuple(start + c for c in key) for key in keys]
            for start, keys in zip(starts(self.inputs), self.index_keys, strict=True)
        ]

    @property
    def unique(self) -> frozenset[Key]:
        """The unique keys of all inputs, as positions in all columns."""
        return frozenset(
            tuple(start + c for c in key)
            for start, keys in zip(starts(self.inputs), self.unique_keys, strict=False)
            for key in keys
        )

    def values_of(self, bound: frozenset[int]) -> int | None:
        """The number of values in the columns `bound` of the rows that are met, as an exponent: as many as the rows of
        an input of which they hold a unique key. None: unknown.
        """
        return min((rows for key, rows in self._counted_keys if bound.issuperset(key)), default=None)

    @cached_property
    def _counted_keys(self) -> list[tuple[Key, int]]:
        """Unique keys of inputs whose rows before filters are known, and these rows."""
        counts = [self.known_rows(at).before for at in range(len(self.inputs))]
        return [(key, n) for keys, n in zip(self.row_keys, counts, strict=True) if n is not None for key in keys]

    @cached_property
    def row_keys(self) -> list[list[Key]]:
        """The columns of each input that no two of its rows share, as positions in all columns."""
        known = map(self.known_rows, range(len(self.inputs)))
        return [
            [tuple(start + c for c in key) for key in rows.unique_keys]
            for start, rows in zip(starts(self.inputs), known, strict=True)
        ]

    @property
    def columns(self) -> list[frozenset[int]]:
        """The columns of each input, as positions in all columns."""
        return [frozenset(range(s, s + len(i.schema))) for s, i in zip(starts(self.inputs), self.inputs, strict=True)]


def join_problem(
    candidates: Sequence[PlannedInput], indexed: frozenset[int], predicates: Sequence[ScalarExpr], after: FilterProject
) -> JoinProblem:
    """The problem in which the inputs `indexed` have the form of their indexes."""
    forms = [c.indexed if i in indexed else None for i, c in enumerate(candidates)]
    inputs = tuple(c.plan if form is None else form.gets[0] for c, form in zip(candidates, forms, strict=True))
    columns: list[ScalarExpr] = []
    lifted: list[ScalarExpr] = []
    for start, plan, form in zip(starts(inputs), inputs, forms, strict=True):
        row = FilterProject((), refs(plan.schema)) if form is None else form.row
        columns += [shift_columns(o, start) for o in row.outputs]
        lifted += [shift_columns(p, start) for p in row.predicates]
    moved = tuple(substitute(p, columns) for p in predicates)
    later = FilterProject(
        tuple(substitute(p, columns) for p in after.predicates), tuple(substitute(o, columns) for o in after.outputs)
    )
    keys = tuple(() if form is None else form.keys for form in forms)
    unique = tuple(frozenset[Key]() if form is None else form.unique_keys for form in forms)
    known = tuple(
        c.known if form is None else replace(c.known, unique_keys=form.row_keys)
        for c, form in zip(candidates, forms, strict=True)
    )
    return JoinProblem(inputs, keys, (*lifted, *moved), later, unique, known)


def indexes_used(join: Join, index_keys: Sequence[tuple[Key, ...]]) -> Iterator[tuple[int, Key]]:
    """(input, key) of the existing arrangements that lookups of the join use."""
    for at, key in lookups(join):
        columns = key_columns(key)
        yield from ((at, k) for k in index_keys[at] if columns is not None and sorted(k) == sorted(columns))


def lookups(join: Join) -> Iterator[tuple[int, tuple[ScalarExpr, ...]]]:
    """(input, key) of all arrangements of inputs that the join needs."""
    if isinstance(join.plan, LinearJoin):
        yield join.plan.source, join.plan.stages[0].stream_key
        yield from ((stage.lookup, stage.lookup_key) for stage in join.plan.stages)
    else:
        yield from ((stage.lookup, stage.lookup_key) for path in join.plan.paths for stage in path.stages)


def arrangement_count(join: Join, index_keys: Sequence[tuple[Key, ...]]) -> int:
    """The number of arrangements that the join must keep itself, of inputs and of intermediate streams."""
    existing = {(at, frozenset(key)) for at, key in indexes_used(join, index_keys)}
    if isinstance(join.plan, LinearJoin):
        needed = [(at, frozenset(key_columns(key) or ())) for at, key in lookups(join)]
        streams = len(join.plan.stages) - 1
        return streams + sum(1 for each in needed if each not in existing)
    return len({(at, frozenset(key_columns(key) or ())) for at, key in lookups(join)} - existing)


def key_columns(key: Sequence[ScalarExpr]) -> Key | None:
    """The columns of the key; None where the key has other expressions."""
    columns = tuple(k.index for k in key if isinstance(k, ColumnRef))
    return columns if len(columns) == len(key) else None
