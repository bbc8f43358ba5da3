"""The last Status of each object and kind, repeated for a new client."""

from __future__ import annotations

from collections.abc import Callable

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status


class StatusRepeater:
    """Passes responses on, without a Status that equals the last one of its object and kind. A first Status without
    fields is not passed on either."""

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
        """Repeats each last Status that has fields."""
        for status in self._told.values():
            if status.fields:
                self._respond(status)
