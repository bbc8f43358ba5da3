"""Orders of joins that planning would not choose, in the place of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from tests.checked_patches import CheckedPatches
from tidemark_planner.lir import joins
from tidemark_planner.lir.joins import delta, linear
from tidemark_planner.lir.joins.order import PossibleLookup, Preference, first_input

Choice = Callable[[Sequence[PossibleLookup], Preference], PossibleLookup]
# The first of so many inputs; None: the one that planning chooses.
First = Callable[[int], int] | None
# The next lookup, the first input, and whether the join may be a delta join.
Order = tuple[Choice, First, bool]


@contextmanager
def forced(choose: Choice, first: First, by_paths: bool = True) -> Iterator[None]:
    """Joins that are planned in the block have this order; `by_paths` False: none is a delta join."""

    def next_lookup(lookups: Iterable[PossibleLookup], prefer: Preference) -> PossibleLookup:
        return choose(list(lookups), prefer)

    with CheckedPatches.context() as patch:
        for module in (linear, delta):
            patch.setattr(module, "next_lookup", next_lookup)
        patch.setattr(joins, "FIRST_INPUTS", (first_input,))
        if first is not None:  # also of two inputs, which planning meets in the query's order
            patch.setattr(joins._Planner, "_find_first_inputs", lambda planner, _: (first(len(planner._candidates)),))
        if not by_paths:
            patch.setattr(joins, "delta_join", lambda *_: None)
        yield


def worst(lookups: Sequence[PossibleLookup], prefer: Preference) -> PossibleLookup:
    return max(lookups, key=prefer)


def last(inputs: int) -> int:
    return inputs - 1


def orders(random: Random) -> Iterator[Order]:
    """From the last input on the worst lookup; from the chosen input and from any on any lookup."""
    for by_paths in (True, False):
        yield worst, last, by_paths
        yield lambda lookups, prefer: random.choice(lookups), None, by_paths
        yield lambda lookups, prefer: random.choice(lookups), random.randrange, by_paths
