"""The frontiers of one collection that were reported to the controller, and the next report.

    as_of 10        observed    write {4}  {10}  {12}  {12}  {11}   dropped
                    reported          -    {10}  {12}   -     -       {}      nothing afterwards

For each kind of frontier, the first report is at or beyond the as_of, each later one is strictly greater, and none
follows the empty frontier. `restart` begins anew for a new client, from its own as_of on.
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
    """Turns observed frontiers into the next `Frontiers` message, or None where nothing has advanced."""

    def __init__(self, id: GlobalId, as_of: Frontier) -> None:
        self._id = id
        self.restart(as_of)

    def restart(self, as_of: Frontier) -> None:
        """Forgets all reports: the client is a new one."""
        self._lower = as_of
        self._reported: dict[str, Frontier] = {}

    def advance(self, observed: Observed) -> Frontiers | None:
        message = {kind: frontier for kind in KINDS if self._is_new(kind, frontier := getattr(observed, kind))}
        if not message:
            return None
        self._reported.update(message)
        return replace(Frontiers(self._id), **message)

    @property
    def has_ended(self) -> bool:
        """Whether every kind was reported as empty; no message about the collection may follow."""
        return all(kind in self._reported and self._reported[kind].is_empty for kind in KINDS)

    def finish(self) -> Frontiers | None:
        """The report of a dropped collection: every kind becomes empty."""
        return self.advance(Observed.all_at(Frontier.empty()))

    def _is_new(self, kind: str, frontier: Frontier) -> bool:
        before = self._reported.get(kind)
        return frontier >= self._lower if before is None else frontier > before
