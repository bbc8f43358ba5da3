"""A replica's pool, without threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark_replica.events.jobs import Done, Failed, Job, JobCancelled, Outcome


class Pool:
    """Work whose end comes when the machine says so."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> Job:
        job = Job(name)
        self._ends.append(lambda: done(Failed(JobCancelled(name)) if job.cancelled else Done(work())))
        return job

    def finish(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()
