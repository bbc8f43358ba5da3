"""The keys of groups: by which columns a plan's rows are the groups of a reduction whose state has them as sums.

    Mfp filter c1 > 10 project [c1, c0]      the groups' key is column 1: the state, by c0, serves lookups by it
      Reduce key=[c0] count(*)

Such rows are found in the reduction's state by the whole key, one at most, with what is computed of them. Aggregates of
one kind of state alone: of sums of all rows, or of the distinct values of one argument. Not min, max and others, whose
state is of rows, nor several kinds, which are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.lir import AccumulableReduce, DistinctReduce, Get, MapFilterProject, Mfp, Plan, Reduce

Key = tuple[int, ...]
KnownKeys = Mapping[GlobalId | LocalId, Key]


def group_key(plan: Plan, known: KnownKeys) -> Key | None:
    """The columns that are the whole key of the groups; None if a part of it is lost, or if the rows are no groups.

    `known`: the keys of what the plan reads by name.
    """
    match plan:
        case Get(name, _, None):
            return known.get(name)
        case Mfp(input, mfp):
            return _shown_key(mfp, group_key(input, known))
        case Reduce() if plan.key and _is_of_sums(plan):
            return _shown_key(plan.mfp_after, tuple(range(len(plan.key))))
        case _:
            return None


def is_by_groups(plan: Plan, columns: Sequence[int], known: KnownKeys) -> bool:
    """Whether these columns, in any order, are the whole key of the groups."""
    key = group_key(plan, known)
    return key is not None and sorted(columns) == sorted(key)


def _is_of_sums(plan: Reduce) -> bool:
    match plan.plan:
        case DistinctReduce():
            return True
        case AccumulableReduce(aggregates):
            return len({a.argument if a.distinct else None for a in aggregates}) == 1
        case _:
            return False


def _shown_key(mfp: MapFilterProject, key: Key | None) -> Key | None:
    """The key over the columns that the MapFilterProject gives; None where it drops a column of the key, or filters by
    time."""
    if key is None or mfp.lower or mfp.upper:
        return None
    shown = range(len(mfp.extended)) if mfp.projection is None else mfp.projection
    places = [next((at for at, column in enumerate(shown) if column == k), None) for k in key]
    found = tuple(place for place in places if place is not None)
    return found if len(found) == len(key) else None
