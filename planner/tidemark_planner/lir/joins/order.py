"""The order in which a join meets its inputs, by what is known without statistics.

    order_id 7 of orders  →  items, of one order  →  parts, one for each item  →  stock, many for each part

The first input is the query's first one, or one that has one row at most. The next one is the best lookup that an
equality makes possible: by a unique key, which adds no rows; in an arrangement that exists; by more columns, unless
they are a unique key; of an input whose filters leave fewer rows. Where nothing is known, the order is the query's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidemark_planner.hir.keys import Key, has_one_row, unique_keys
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.hir.selectivity import is_one_row, share_kept
from tidemark_planner.lir.mfp import fuse


@dataclass(frozen=True)
class KnownRows:
    """What is known of an input's rows.

    `unique_keys`: columns of the input that no two rows share. `share`: the part of the rows that its filters keep, as
    a power of two. `is_one`: there is one row at most.
    """

    unique_keys: tuple[Key, ...] = ()
    share: int = 0
    is_one: bool = False


@dataclass(frozen=True)
class Lookup:
    """A lookup of `input` that may come next: by `columns` columns, 0 for a cross join.

    `unique`: a row meets one row at most. `arranged`: by an arrangement that exists. `rows`: of the input, as far as
    its filters run before or with the lookup.
    """

    input: int
    columns: int
    unique: bool
    arranged: bool
    rows: KnownRows


# The lookup with the least value goes first.
Preference = Callable[[Lookup], tuple[int, ...]]


def known_rows(node: Hir) -> KnownRows:
    """What is known of the rows of an input."""
    base, row = fuse(node)
    one = has_one_row(node) or is_one_row(row.predicates, unique_keys(base))
    return KnownRows(unique_keys(node), share_kept(row.predicates), one)


def fewest_rows(lookup: Lookup) -> tuple[int, ...]:
    """Prefers lookups that make few rows: where two are alike, the query's order."""
    return lookup.columns == 0, not lookup.unique, not lookup.arranged, *_by_filters(lookup)


def fewest_arrangements(lookup: Lookup) -> tuple[int, ...]:
    """As `fewest_rows`, but prefers arrangements that exist to unique keys."""
    return lookup.columns == 0, not lookup.arranged, not lookup.unique, *_by_filters(lookup)


def _by_filters(lookup: Lookup) -> tuple[int, ...]:
    columns = 0 if lookup.unique else -lookup.columns
    return columns, not lookup.rows.is_one, lookup.rows.share, lookup.input


def next_lookup(lookups: Iterable[Lookup], prefer: Preference) -> Lookup:
    """The lookup that goes next."""
    return min(lookups, key=prefer)


def first_input(known: Sequence[KnownRows], connected: Sequence[bool]) -> int:
    """The input that the others are met with: the first one that has one row at most, else the first one.

    `connected`: whether an equality binds each input to another. A row that nothing binds would make a cross join.
    """
    ones = (at for at, rows in enumerate(known) if rows.is_one and connected[at])
    return 0 if known[0].is_one else next(ones, 0)
