"""Aggregates that are taken before a join, and again after it: the join then keeps a row per group of an input.

    Aggregate [d.name] [sum(f.x), count(*)]        Aggregate [d.name] [sum(c1), sum(c2)]
      Join on f.k = d.k                        ->    Join on c0 = d.k
        Scan f                                         Aggregate [f.k] [sum(f.x), count(*)]
        Scan d                                           Scan f
                                                       Scan d

A row of the other inputs meets a group of f where it met the rows of the group, so each total counts as often as these
would have. The groups have all columns of f that the join and what follows it read, beside the totals. Rows of f that
no equality joins, for want of a value, are in no group.

It is possible where the aggregates read one input, by expressions that cannot fail: rows that the join drops are
computed too. For the same reason totals of groups are exact and never overflow: neither bigints nor doubles are summed
in parts.

It is chosen where that input is known to have many rows for each group: the columns that it is grouped by are equal to
unique keys of other inputs, which have far fewer rows. An input that is arranged anyway stays as it is: by an index, or
for other joins (needless_reductions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidemark_planner.hir.keys import Key, equal_columns, unique_keys
from tidemark_planner.hir.nodes import (
    Aggregate,
    Hir,
    Join,
    LetRec,
    Scan,
    columns,
    filtered,
    inputs_of,
    project,
    starts,
    with_inputs,
)
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.mfp import fuse
from tidemark_planner.lir.partial_totals import PartialTotal, partial_total
from tidemark_planner.lir.reduced_inputs import ReducedInput, pays
from tidemark_planner.rules.prune import prune
from tidemark_planner.rules.scalar import grows_too_large, is_null_where, substitute
from tidemark_protocol.functions.registry import call, is_fallible, reads_clock
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of, map_columns
from tidemark_protocol.plan.row_estimates import share_kept
from tidemark_protocol.types import BOOLEAN, INTERVAL_TYPES, SqlType


@dataclass(frozen=True)
class ReductionCandidate:
    """An input of a join that could be reduced first: by its columns `key`. `is_arranged`: the join can read it in an
    arrangement that is there anyway.
    """

    input: int
    key: Key
    reduced: ReducedInput
    is_arranged: bool


def choose(candidates: Sequence[ReductionCandidate]) -> ReductionCandidate | None:
    """The candidate that saves most, where one is known to save enough."""
    paying = (c for c in candidates if not c.is_arranged and pays(c.reduced.gain))
    return max(paying, key=lambda c: c.reduced.gain or 0, default=None)


def reduce_before_joins(node: Hir, imports: Imports) -> Hir:
    """The same rows; aggregates of joins are taken before them where that is chosen. Recursions stay as they are."""
    if isinstance(node, LetRec):
        return replace(node, body=reduce_before_joins(node.body, imports))
    node = with_inputs(node, tuple(reduce_before_joins(each, imports) for each in inputs_of(node)))
    joined = _over_join(node) if isinstance(node, Aggregate) else None
    if joined is None:
        return node
    chosen = choose([*joined.candidates(imports)])
    if chosen is None:
        return node
    imports.reduced_inputs.reduced[joined.groups(chosen)] = chosen.reduced
    return prune(joined.reduced_before(chosen))


def _over_join(node: Aggregate) -> _AggregatedJoin | None:
    """The aggregate of a join; None where it is none, or none that can be taken in parts."""
    base, row = fuse(node.input)
    if not isinstance(base, Join) or grows_too_large((*node.keys, *node.values), row.outputs):
        return None
    keys, values = (tuple(substitute(e, row.outputs) for e in of) for of in (node.keys, node.values))
    if any(map(is_fallible, values)) or any(map(reads_clock, (*keys, *values, *base.predicates, *row.predicates))):
        return None
    totals = [partial_total(each, values) for each in node.aggregates]
    found = tuple(total for total in totals if total is not None)
    return _AggregatedJoin(base, row.predicates, keys, values, found) if len(found) == len(totals) else None


@dataclass(frozen=True)
class _AggregatedJoin:
    """An aggregate of a join whose rows also pass `conditions`. All expressions are over the columns of the join."""

    join: Join
    conditions: tuple[ScalarExpr, ...]
    keys: tuple[ScalarExpr, ...]
    values: tuple[ScalarExpr, ...]
    totals: tuple[PartialTotal, ...]

    def candidates(self, imports: Imports) -> Iterator[ReductionCandidate]:
        """The inputs that may be reduced first: the aggregates read such an input alone, and group some of its rows."""
        read = frozenset[int]().union(*map(columns_of, self.values))
        kept = frozenset[int]().union(*map(columns_of, (*self.join.predicates, *self.conditions, *self.keys)))
        for at, (start, each) in enumerate(zip(starts(self.join.inputs), self.join.inputs, strict=True)):
            own = range(start, start + len(each.schema))
            key = tuple(column - start for column in sorted(kept.intersection(own)))
            if read.issubset(own) and key and _makes_groups(each, key):
                rows, groups = _rows(each, imports), self._groups(at, key, imports)
                gain = None if rows is None or groups is None else rows - groups
                reduced = ReducedInput(each, frozenset(self._lookups(at)), gain)
                is_arranged = reduced in imports.reduced_inputs.kept or _on_index(each, key, imports)
                yield ReductionCandidate(at, key, reduced, is_arranged)

    def _groups(self, at: int, key: Key, imports: Imports) -> int | None:
        """The most groups that meet a row: the key's columns are unique keys of other inputs, which are counted."""
        groups, left = 0, set(key)
        for each, pairs in self._equal(at):
            equal = {b: a for a, b in pairs if a in left}
            found = next((unique for unique in unique_keys(each) if set(unique) <= equal.keys()), None)
            rows = None if found is None else _rows(each, imports, filtered=False)
            if found is not None and rows is not None:
                left -= {equal[column] for column in found}
                groups += rows
        return None if left else groups

    def _lookups(self, at: int) -> Iterator[frozenset[int]]:
        """The columns of an input by which each other one looks up its rows."""
        return (frozenset(a for a, _ in pairs) for _, pairs in self._equal(at) if pairs)

    def _equal(self, at: int) -> Iterator[tuple[Hir, list[tuple[int, int]]]]:
        """Yield each input but `at`, and pairs of equal columns: one of `at`, and one of that input."""
        ranges = [range(s, s + len(i.schema)) for s, i in zip(starts(self.join.inputs), self.join.inputs, strict=True)]
        equalities = equal_columns(self.join.predicates)
        both = [*equalities, *((b, a) for a, b in equalities)]
        for other, (each, own) in enumerate(zip(self.join.inputs, ranges, strict=True)):
            if other != at:
                yield each, [(a - ranges[at].start, b - own.start) for a, b in both if a in ranges[at] and b in own]

    def reduced_before(self, chosen: ReductionCandidate) -> Hir:
        """The aggregate, of the join of the groups of the chosen input."""
        inputs, start = list(self.join.inputs), starts(self.join.inputs)[chosen.input]
        width = len(inputs[chosen.input].schema)
        inputs[chosen.input] = self.groups(chosen)
        place = {start + column: start + at for at, column in enumerate(chosen.key)}
        shrunk = len(inputs[chosen.input].schema) - width

        def moved(exprs: Sequence[ScalarExpr]) -> tuple[ScalarExpr, ...]:
            return tuple(map_columns(e, lambda c: c if c < start else place.get(c, c + shrunk)) for e in exprs)

        joined = Join(tuple(inputs), moved(self.join.predicates))
        first = start + len(chosen.key)
        whole = Aggregate(
            filtered(joined, moved(self.conditions)),
            moved(self.keys),
            columns(joined)[first : first + len(self.totals)],
            tuple(replace(t.total, argument=at, filter=None) for at, t in enumerate(self.totals)),
        )
        row, keys = columns(whole), len(self.keys)
        totals = (t.aggregate_value(column) for t, column in zip(self.totals, row[keys:], strict=True))
        return project(whole, (*row[:keys], *totals))

    def groups(self, chosen: ReductionCandidate) -> Aggregate:
        """The groups of the chosen input, and the parts of the aggregates."""
        reduced, start, key = self.join.inputs[chosen.input], starts(self.join.inputs)[chosen.input], chosen.key
        values: dict[ScalarExpr, int] = {}

        def value_position(value: ScalarExpr) -> int:
            """The position of a value of the input among those that the reduction computes; a new value is added."""
            return values.setdefault(map_columns(value, lambda column: column - start), len(values))

        parts = []
        for total in self.totals:
            only = None if total.part.filter is None else value_position(self.values[total.part.filter])
            argument = None if total.value is None else value_position(total.value)
            parts.append(replace(total.part, argument=argument, filter=only))
        own = columns(reduced)
        joined = (own[column] for column in key if own[column].nullable and self._joins_no_null(start + column))
        rows = filtered(reduced, tuple(call("is_not_null", (column,), BOOLEAN) for column in joined))
        return Aggregate(rows, tuple(own[column] for column in key), tuple(values), tuple(parts))

    def _joins_no_null(self, column: int) -> bool:
        """Whether an equality of the join drops the rows where the column is NULL."""
        only = frozenset({column})
        equalities = (p for p in self.join.predicates if isinstance(p, Call) and p.function == "=")
        return any(is_null_where(p, only) and not is_fallible(p) for p in equalities)


def _makes_groups(node: Hir, key: Key) -> bool:
    """Whether rows may be equal in these columns, and are then alike in all that is computed of them: -0.0 and 0.0 are
    one group, but have two texts.
    """
    told_apart = any(set(key).issuperset(unique) for unique in unique_keys(node))
    return not told_apart and all(_is_exact(node.schema[column].type) for column in key)


def _is_exact(type: SqlType) -> bool:
    return not type.is_floating and type.name not in INTERVAL_TYPES and all(map(_is_exact, type.children))


def _rows(node: Hir, imports: Imports, *, filtered: bool = True) -> int | None:
    """The estimate of a table's rows, with or without its filters; None: unknown, or not of a table."""
    base, row = fuse(node)
    rows = imports.rows.get(base.id) if isinstance(base, Scan) else None
    return None if rows is None else max(0, rows + (share_kept(row.predicates) if filtered else 0))


def _on_index(node: Hir, key: Key, imports: Imports) -> bool:
    """Whether there is an index of the collection by some of these columns."""
    base, row = fuse(node)
    indexed = imports.indexed_input(base, row)
    if indexed is None:
        return False
    outputs = [indexed.row.outputs[column] for column in key]
    found = {output.index for output in outputs if isinstance(output, ColumnRef)}
    return any(found.issuperset(index) for index in indexed.keys)
