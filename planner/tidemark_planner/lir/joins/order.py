"""The order in which a join meets its inputs, by what is known of them.

    order_id 7 of orders  →  items, of one order  →  parts, one for each item  →  stock, many for each part

The next input is the best lookup that an equality makes possible: by a unique key, which adds no rows; in an
arrangement that exists; that makes fewer rows, where row counts are known; by more columns; of an input whose filters
leave fewer rows. Where nothing is known, the order is the query's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidemark_planner.hir.keys import Key, has_one_row, is_one_row, unique_keys
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.lir.mfp import fuse
from tidemark_protocol.plan.lir import Mfp, Plan
from tidemark_protocol.plan.row_estimates import LEAST_SHARE, MOST, Exponents, rows_of, share_kept


@dataclass(frozen=True)
class KnownRows:
    """The planner's knowledge of an input's rows; numbers are exponents of two.

    `unique_keys`: columns of the input that no two rows share. `share`: the part of the rows that its filters keep.
    `is_one`: there is one row at most. `before`: the rows before its filters; None: unknown.
    """

    unique_keys: tuple[Key, ...] = ()
    share: int = 0
    is_one: bool = False
    before: int | None = None

    @property
    def rows(self) -> int | None:
        """The rows that filters leave; None: unknown."""
        if self.is_one:
            return 0
        return None if self.before is None else max(0, self.before + self.share)


@dataclass(frozen=True)
class PossibleLookup:
    """A lookup of `input` that may come next: by `columns` columns, 0 for a cross join.

    `unique`: a row meets one row at most. `arranged`: by an arrangement that exists. `rows`: of the input, as far as
    its filters run before or with the lookup. `values`: an exponent, how many values the columns have; None: unknown.
    """

    input: int
    columns: int
    unique: bool
    arranged: bool
    rows: KnownRows
    values: int | None = None

    @property
    def growth(self) -> int | None:
        """The number of rows that a row meets, as an exponent; None: unknown."""
        if self.unique:
            return LEAST_SHARE if self.rows.is_one else self.rows.share
        if self.rows.rows is None or self.rows.before is None:
            return None
        if self.columns == 0:
            return self.rows.rows
        values = self.rows.before // 2 if self.values is None else min(self.values, self.rows.before)
        return self.rows.rows - values


# The lookup with the least value goes first.
Preference = Callable[[PossibleLookup], tuple[int, ...]]


def known_rows(node: Hir, plan: Plan, known: Exponents) -> KnownRows:
    """The planner's knowledge of the rows of an input, whose plan is `plan`. `known`: estimates of what plans read."""
    base, row = fuse(node)
    one = has_one_row(node) or is_one_row(row.predicates, unique_keys(base))
    before = rows_of(plan.input if isinstance(plan, Mfp) else plan, known)
    return KnownRows(unique_keys(node), share_kept(row.predicates), one, before)


def fewest_rows(lookup: PossibleLookup) -> tuple[int, ...]:
    """Prefers lookups that make few rows: where two are alike, the query's order."""
    return lookup.columns == 0, not lookup.unique, not lookup.arranged, *_by_rows(lookup)


def fewest_arrangements(lookup: PossibleLookup) -> tuple[int, ...]:
    """Ranks like `fewest_rows`, but prefers arrangements that exist to unique keys."""
    return lookup.columns == 0, not lookup.arranged, not lookup.unique, *_by_rows(lookup)


def query_order(lookup: PossibleLookup) -> tuple[int, ...]:
    """Prefers arrangements that exist, then the query's order: of some joins this needs the fewest arrangements."""
    return lookup.columns == 0, not lookup.arranged, lookup.input


def _by_rows(lookup: PossibleLookup) -> tuple[int, ...]:
    growth, columns = lookup.growth, 0 if lookup.unique else -lookup.columns
    return growth is None, growth or 0, columns, not lookup.rows.is_one, lookup.rows.share, lookup.input


def next_lookup(lookups: Iterable[PossibleLookup], prefer: Preference) -> PossibleLookup:
    """The lookup that goes next."""
    return min(lookups, key=prefer)


def first_input(known: Sequence[KnownRows], orders: Sequence[Sequence[PossibleLookup]]) -> int:
    """The input that the join begins with: the query's first one, unless another one is known to make fewer rows.

    `known`: the rows of each input as they are read. `orders`: the lookups that follow each input, if it is the first.
    Orders with the fewest cross joins count alone. Where all rows are known, the first input is the one whose order
    makes the fewest; else it is one that has one row at most and that an equality binds to one other input.
    """
    crossings = [_crossings(lookups) for lookups in orders]
    left = [at for at, each in enumerate(crossings) if each == min(crossings)]
    costs = [_rows_made(known[at], orders[at]) for at in left]
    found = [cost for cost in costs if cost is not None]
    if len(found) == len(left):
        return left[costs.index(min(found))]
    return next((at for at in left if known[at].is_one and orders[at][0].columns), left[0])


def query_first(known: Sequence[KnownRows], orders: Sequence[Sequence[PossibleLookup]]) -> int:
    """The query's first input, whatever is known."""
    return 0


def _crossings(lookups: Sequence[PossibleLookup]) -> tuple[int, bool]:
    """The number of lookups that are cross joins, and whether the first one is, with all rows of an input."""
    return sum(lookup.columns == 0 for lookup in lookups), lookups[0].columns == 0


def _rows_made(first: KnownRows, lookups: Sequence[PossibleLookup]) -> int | None:
    """The rows that a join has met after its first input and after each lookup, together; None: unknown."""
    rows = first.rows
    if rows is None:
        return None
    made = 1 << rows
    for lookup in lookups:
        growth = lookup.growth
        if growth is None:
            return None
        rows = min(MOST, max(0, rows + growth))
        made += 1 << rows
    return made
