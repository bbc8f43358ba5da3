"""The progress on a replica of a dataflow that is behind: it catches up in steps of bounded rows.

    Status catch_up {percent: 42, goal: 1732147200000, updates: 2100000}
    Status catch_up {}                                                      it has caught up

It is shown and nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.frontier import Frontier


@dataclass(frozen=True)
class CatchUp:
    """`percent` of what it was behind is computed; about `updates` before `goal` are left."""

    percent: int
    goal: Frontier
    updates: int


def catch_up(fields: Mapping[str, str]) -> CatchUp | None:
    """The progress in the fields of a status; None where it has caught up, or for an image with another format."""
    try:
        return CatchUp(int(fields["percent"]), Frontier.decode(int(fields["goal"])), int(fields["updates"]))
    except (KeyError, ValueError):
        return None
