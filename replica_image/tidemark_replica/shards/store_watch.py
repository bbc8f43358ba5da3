"""Watches whether the instance's object store answers, and reports changes.

    Status storage of the instance   {reason: AccessDenied, message: the store's, and what to do}     or {}: it answers

A poll lists an object that never exists, so it needs the right to list and leaves nothing. Other users of the store
retry at their own pace; nothing waits for this watch. Storage on a disk is not watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemark_persist import PersistError, StorageError, check_store
from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.events.jobs import Failed, Outcome, Pool

KIND = "storage"
POLL_SECONDS = 30.0
POLL_SECONDS_FAILING = 5.0
"""Seconds between polls while the store does not answer."""
MESSAGE_LENGTH_MAX = 1000


class StoreWatch:
    """Runs on the command loop and polls on a pool, once at a time."""

    def __init__(
        self, jobs: Pool, respond: Callable[[Response], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs, self._respond, self._clock = jobs, respond, clock
        self._location: str | None = None
        self._polling, self._due = False, 0.0

    def set_location(self, location: str) -> None:
        """The instance's storage location, which never changes in the life of the process."""
        self._location = location if "://" in location and not location.startswith("file:") else None

    def maintain(self) -> None:
        location = self._location
        if location is not None and not self._polling and self._clock() >= self._due:
            self._polling = True
            self._jobs.submit("check the object store", lambda: check_store(location), self._polled)

    def _polled(self, outcome: Outcome[None]) -> None:
        self._polling = False
        status = _status_fields(outcome.error) if isinstance(outcome, Failed) else {}
        self._due = self._clock() + (POLL_SECONDS_FAILING if status else POLL_SECONDS)
        self._respond(Status(INSTANCE, KIND, status))


def _status_fields(error: Exception) -> dict[str, str]:
    if not isinstance(error, PersistError):
        return {"reason": "Failed", "message": f"{type(error).__name__} while the object store was checked"}
    problem = error.problem if isinstance(error, StorageError) else None
    return {"reason": problem.value if problem else "Failed", "message": str(error)[:MESSAGE_LENGTH_MAX]}
