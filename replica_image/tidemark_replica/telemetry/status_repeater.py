"""The last Status of each kind, which a new client is told again."""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status


class StatusRepeater:
    """Passes responses on; of Statuses, only those that differ from the last one of their kind."""

    def __init__(self, respond: Callable[[Response], None]) -> None:
        self._respond = respond
        self._told = dict[tuple[GlobalId, str], Status]()

    def __call__(self, response: Response) -> None:
        if isinstance(response, Status):
            before = self._told.get((response.id, response.kind))
            if response == before or not (before or response.fields):
                return
            self._told[response.id, response.kind] = response
        self._respond(response)

    def report_again(self) -> None:
        """Repeats the Statuses that say something."""
        for status in self._told.values():
            if status.fields:
                self._respond(status)
