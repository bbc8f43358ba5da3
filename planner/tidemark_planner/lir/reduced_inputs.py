"""Inputs of joins that are reduced first, while the objects of a dataflow are planned."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_planner.hir.nodes import Hir

_LEAST_GAIN = 3
"""An exponent of two: at least eight rows for each group. A delta join keeps the groups once more, and
each change of a row passes one aggregate more."""


def pays(gain: int | None, sharing: int = 1) -> bool:
    """Whether groups in place of rows pay, for so many joins that would share an arrangement of the rows. `gain`: rows
    for each group, as an exponent of two; None: unknown."""
    return gain is not None and gain >= _LEAST_GAIN + (sharing - 1).bit_length()


@dataclass(frozen=True)
class ReducedInput:
    """The input, and the columns by which each other input looks up its rows. `gain`: as of `pays`."""

    input: Hir
    keys: frozenset[frozenset[int]]
    gain: int | None = field(compare=False)


@dataclass
class ReducedInputs:
    """`reduced`: those of the objects so far, by the groups in their place: equal ones are computed once. `kept`: those
    that stay as they are, since they are arranged anyway."""

    reduced: dict[Hir, ReducedInput] = field(default_factory=dict)
    kept: set[ReducedInput] = field(default_factory=set)
