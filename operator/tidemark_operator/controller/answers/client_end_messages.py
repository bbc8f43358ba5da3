"""The last message to the client of a subscribe or copy when what it reads goes away.

    cause      Dataflow a was edited, ...                      what became of its input
    received   ─────────────────────────►                      the client has all changes up to here
    since             ├──────────────────────────────►         the replacement can be read from here on

A client can resume without a gap where the two overlap: as of the last time that it received completely. The rows of
the new revision may differ at that time, and no replica sends them as changes, so the client resumes with the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.controller.answers.subscribes import Position
from tidemark_operator.resources.conditions.frontier import moment
from tidemark_protocol.frontier import Frontier


@dataclass(frozen=True)
class EndMessage:
    """`cause`: what happened; `since`: of the collection that takes the place of the input; None where there is
    none."""

    cause: str
    since: Frontier | None = None

    def of_subscribe(self, received: Position) -> str:
        """The message for a subscribe that has received everything up to `received`."""
        return ". ".join((self.cause, _progress_text(received), *self._advice(received)))

    def of_copy(self) -> str:
        """The message for a copy."""
        return self.cause if self.since is None else f"{self.cause}. Copy again"

    def _advice(self, received: Position) -> tuple[str, ...]:
        if self.since is None or self.since.is_empty:
            return ()
        last = max(0, received[0].encode() - 1)
        if not self.since.less_equal(last):
            return (f"Subscribe again: it can be read as of {moment(self.since)} and later",)
        return (
            f"Subscribe again with --as-of {last}, and with the snapshot: it begins with the rows of the new revision "
            f"then, and goes on with every change from {last + 1} on",
        )


def _progress_text(received: Position) -> str:
    time, part = received
    if received == (Frontier.minimum(), 0):
        return "No change had been sent yet"
    within = ", and some of those then" if part else ""
    return f"All changes before {moment(time)} had been told{within}"
