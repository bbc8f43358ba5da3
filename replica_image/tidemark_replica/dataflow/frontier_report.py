"""What the controller has been told of one collection's frontiers, and what may be told next.

    as_of 10        observed    write {4}  {10}  {12}  {12}  {11}   dropped
                    reported          -    {10}  {12}   -     -       {}      nothing ever after

Of each kind: the first report is at or beyond the as_of, each later one strictly further, and after the empty
frontier none. A new client is told everything anew (`restart`), from its own as_of on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Frontiers

KINDS = ("write", "input", "output")


@dataclass(frozen=True)
class Observed:
    """The three frontiers of a collection as the replica knows them."""

    write: Frontier
    input: Frontier
    output: Frontier

    @staticmethod
    def all_at(frontier: Frontier) -> Observed:
        return Observed(frontier, frontier, frontier)


class FrontierReport:
    """Message in, message out: observed frontiers to the next `Frontiers`, or None when nothing new may be said."""

    def __init__(self, id: GlobalId, as_of: Frontier) -> None:
        self._id = id
        self.restart(as_of)

    def restart(self, as_of: Frontier) -> None:
        """Nothing has been reported to the present client."""
        self._lower = as_of
        self._reported: dict[str, Frontier] = {}

    def advance(self, observed: Observed) -> Frontiers | None:
        message = {kind: frontier for kind in KINDS if self._is_new(kind, frontier := getattr(observed, kind))}
        if not message:
            return None
        self._reported.update(message)
        return replace(Frontiers(self._id), **message)

    @property
    def ended(self) -> bool:
        """Every kind has been reported empty: nothing is said of this collection any more."""
        return all(kind in self._reported and self._reported[kind].is_empty for kind in KINDS)

    def finish(self) -> Frontiers | None:
        """The collection was dropped: every kind that is not empty yet becomes so."""
        return self.advance(Observed.all_at(Frontier.empty()))

    def _is_new(self, kind: str, frontier: Frontier) -> bool:
        before = self._reported.get(kind)
        return frontier >= self._lower if before is None else frontier > before
