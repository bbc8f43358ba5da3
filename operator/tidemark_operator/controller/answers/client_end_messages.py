"""What the client of a subscribe or copy is told when what it reads goes away.

    cause      Dataflow a was edited, ...                      what became of what it reads
    told       ─────────────────────────►                      up to where the client has heard everything
    since             ├──────────────────────────────►         where what takes its place can be read

A subscribe can be taken up without a gap where the two overlap: as of the last time that was told whole. The rows of
the new revision may be others there, which no one tells as changes, so it is taken up with its snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.controller.answers.subscribes import Position
from tidemark_operator.resources.conditions.frontier import moment
from tidemark_protocol.frontier import Frontier


@dataclass(frozen=True)
class EndMessage:
    """`since`: of what takes the place of what is read; None where nothing does."""

    cause: str
    since: Frontier | None = None

    def of_subscribe(self, told: Position) -> str:
        """`told`: what the client has heard, up to there."""
        return ". ".join((self.cause, _heard(told), *self._advice(told)))

    def of_copy(self) -> str:
        return self.cause if self.since is None else f"{self.cause}. Copy again"

    def _advice(self, told: Position) -> tuple[str, ...]:
        if self.since is None or self.since.is_empty:
            return ()
        last = max(0, told[0].encode() - 1)
        if not self.since.less_equal(last):
            return (f"Subscribe again: it can be read as of {moment(self.since)} and later",)
        return (
            f"Subscribe again with --as-of {last}, and with the snapshot: it begins with the rows of the new revision "
            f"then, and goes on with every change from {last + 1} on",
        )


def _heard(told: Position) -> str:
    time, part = told
    if told == (Frontier.minimum(), 0):
        return "Nothing had been told yet"
    within = ", and some of those then" if part else ""
    return f"All changes before {moment(time)} had been told{within}"
