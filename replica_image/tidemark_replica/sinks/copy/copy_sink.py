"""The copy sink: writes the contents of a collection at the as_of to files, and answers once.

hydration ──staged files──► written on a pool (files.py) ──► CopyToDone | CopyToFailed
                                          dropped before that ──► CopyToDropped
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages.responses import CopyToDone, CopyToDropped, CopyToFailed, CopyToResponse, Response
from tidemark_replica.events.jobs import Failed, Job, Outcome, Pool
from tidemark_replica.sinks.copy.files import Copy
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.sink_progress import Staged

LOG = logging.getLogger(__name__)
MESSAGE_LENGTH_MAX = 2000
Write = Callable[[Copy, Staged, Callable[[], bool]], int]


class CopyToSink(Sink):
    """Runs on the command loop; `write` runs on a pool."""

    def __init__(self, copy: Copy, write: Write, jobs: Pool, respond: Callable[[Response], None]) -> None:
        self._copy, self._write, self._jobs, self._respond = copy, write, jobs, respond
        self._staged: Staged | None = None
        self._job: Job | None = None
        self._answered = self._stopped = False

    @property
    def write_frontier(self) -> Frontier:
        return Frontier.empty() if self._answered else Frontier.at(self._copy.as_of)

    @property
    def is_full(self) -> bool:
        """Updates after the as_of are not needed."""
        return self._staged is not None

    def stage(self, staged: Staged) -> None:
        if self._staged is None:
            self._staged = staged
        else:
            staged.release()

    def advance(self) -> None:
        if self._staged is not None and self._job is None and not self._answered and not self._stopped:
            copy, staged = self._copy, self._staged
            self._job = self._jobs.submit(
                f"copy {copy.id}", lambda: self._write(copy, staged, lambda: self._stopped), self._written
            )

    def stop(self) -> None:
        """Ends a copy that is being written at its next check; a finished copy stays."""
        self._stopped = True

    def drop(self) -> Response | None:
        self.stop()
        if self._answered:
            return None
        self._answered = True
        return CopyToResponse(self._copy.id, CopyToDropped())

    def _written(self, outcome: Outcome[int]) -> None:
        self._job = None
        if self._stopped or self._answered:
            return
        self._answered = True
        if self._staged is not None:
            self._staged.release()
        result: CopyToDone | CopyToFailed
        if isinstance(outcome, Failed):
            LOG.warning("copy %s failed: %s", self._copy.id, outcome.error)
            result = CopyToFailed(str(outcome.error)[:MESSAGE_LENGTH_MAX])
        else:
            result = CopyToDone(outcome.value)
        self._respond(CopyToResponse(self._copy.id, result))
