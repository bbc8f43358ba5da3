"""Requests about files of a DataSource, as `status.fileRequests` keeps them.

    asked      {id, action, table, file}                        sent to the ingester, again and again, until
    finished   {id, action, table, file, outcome, message}      it reports an outcome

At most one request about a file is unfinished, so the ingester never has to order two of them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark_operator.errors import QueryNotReady, TooMany
from tidemark_protocol.messages.commands import FileRequest
from tidemark_protocol.messages.responses import FileOutcome

UNFINISHED_MAX, FINISHED_MAX, MESSAGE_MAX = 100, 20, 1024
DONE, REFUSED = "done", "refused"


@dataclass(frozen=True)
class RecordedRequest:
    """A request and its outcome: done, refused, or empty while it is unfinished."""

    request: FileRequest
    outcome: str = ""
    message: str = ""

    def document(self) -> dict[str, Any]:
        """The entry of the status."""
        ended = {"outcome": self.outcome, "message": self.message}
        return vars(self.request) | {name: text for name, text in ended.items() if text}


Requests = tuple[RecordedRequest, ...]


def recorded(status: Mapping[str, Any] | None) -> Requests:
    """The requests that a stored status has."""
    return tuple(
        RecordedRequest(
            FileRequest(e["id"], e["action"], e["table"], e["file"]), e.get("outcome", ""), e.get("message", "")
        )
        for e in (status or {}).get("fileRequests") or ()
    )


def unfinished(requests: Iterable[RecordedRequest]) -> tuple[FileRequest, ...]:
    """The requests that the ingester has still to fulfil."""
    return tuple(r.request for r in requests if not r.outcome)


def added(requests: Requests, action: str, table: str, file: str, now_ms: int) -> tuple[Requests, int]:
    """The requests with a new one, and its id; that of the unfinished one where the same was asked before.

    Raises:
        QueryNotReady: another request about this file is unfinished.
        TooMany: UNFINISHED_MAX requests are unfinished.
    """
    waiting = unfinished(requests)
    for request in waiting:
        if (request.table, request.file) == (table, file):
            if request.action == action:
                return requests, request.id
            raise QueryNotReady(
                f"file {table}/{file} has an unfinished request ({request.action}): wait for its outcome"
            )
    if len(waiting) >= UNFINISHED_MAX:
        raise TooMany(f"{len(waiting)} requests about files of this DataSource are unfinished: wait for their outcomes")
    id = max([now_ms, *(r.request.id + 1 for r in requests)])
    return (*requests, RecordedRequest(FileRequest(id, action, table, file))), id


def settled(requests: Requests, outcomes: Sequence[FileOutcome]) -> Requests:
    """The requests with the outcomes that the ingester reports; of the finished ones the newest FINISHED_MAX."""
    reported = {outcome.id: outcome.refusal for outcome in outcomes}
    known = tuple(_settled(r, reported) for r in requests)
    finished = [r for r in known if r.outcome]
    dropped = finished[: max(0, len(finished) - FINISHED_MAX)]
    return tuple(r for r in known if r not in dropped)


def _settled(recorded: RecordedRequest, reported: Mapping[int, str]) -> RecordedRequest:
    refusal = reported.get(recorded.request.id)
    if recorded.outcome or refusal is None:
        return recorded
    return replace(recorded, outcome=REFUSED if refusal else DONE, message=refusal[:MESSAGE_MAX])
