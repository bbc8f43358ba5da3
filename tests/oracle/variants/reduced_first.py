"""Aggregates of joins that planning would take after the join alone, taken before it, too; or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from tests.checked_patches import CheckedPatches
from tidemark_planner.lir import reduce_before_join
from tidemark_planner.lir.reduce_before_join import ReductionCandidate

Choice = Callable[[Sequence[ReductionCandidate]], ReductionCandidate | None]


@contextmanager
def reduced_first(choose: Choice) -> Iterator[list[ReductionCandidate]]:
    """Plans that are made in the block reduce the chosen inputs of joins first; the block is given what was chosen."""
    chosen = list[ReductionCandidate]()

    def chosen_of(candidates: Sequence[ReductionCandidate]) -> ReductionCandidate | None:
        found = choose(candidates) if candidates else None
        chosen.extend(() if found is None else (found,))
        return found

    with CheckedPatches.context() as patch:
        patch.setattr(reduce_before_join, "choose", chosen_of)
        yield chosen


def wherever_possible(candidates: Sequence[ReductionCandidate]) -> ReductionCandidate:
    """The first input that can be reduced, whatever is known of its rows."""
    return candidates[0]


def any_of(random: Random) -> Choice:
    """An input by chance."""
    return random.choice


def never(candidates: Sequence[ReductionCandidate]) -> None:
    """No input."""
