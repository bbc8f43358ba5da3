"""Work off the worker's thread: started there, done on a pool, continued there.

    worker:  submit(work, done) ──► pool: work() ──► mailbox ──► worker: done(outcome)

A job that was cancelled before it began never runs; one that runs goes on until it notices, and its end is still
told, so that what it held can be let go. Whatever it raises, its end is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidemark_replica.errors import ReplicaError
from tidemark_replica.events.mailbox import Mailbox

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class JobCancelled(ReplicaError):
    """The job was cancelled before it began."""


class JobBroken(ReplicaError):
    """The job ended as if the process were to end, which it is not."""


@dataclass(frozen=True)
class Done(Generic[T]):
    value: T


@dataclass(frozen=True)
class Failed:
    error: Exception


Outcome = Done[T] | Failed


class Job:
    """One piece of work. `cancelled` may be asked by the work itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()


class Pool(Protocol):
    """Where jobs are done."""

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job: ...


class WakingJobs:
    """A pool whose jobs' ends are noticed: `wake` is called after each."""

    def __init__(self, pool: Pool, wake: Callable[[], None]) -> None:
        self._pool, self._wake = pool, wake

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job:
        def ended(outcome: Outcome[T]) -> None:
            try:
                done(outcome)
            finally:
                self._wake()

        return self._pool.submit(name, work, ended)


class Jobs:
    """A bounded number of threads; what waits for one is bounded by who submits (one job per dataflow, per shard,
    per step that had output).
    `urges`: the end of one may be something for maintenance."""

    def __init__(self, mailbox: Mailbox, name: str, threads: int, *, urges: bool = True) -> None:
        self._mailbox, self._urges = mailbox, urges
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job:
        job = Job(name)
        self._pool.submit(self._run, job, work, done)
        return job

    def shutdown(self) -> None:
        """No new work; what waits is dropped, what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, job: Job, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        outcome: Outcome[T]
        try:
            outcome = Failed(JobCancelled(job.name)) if job.cancelled else Done(work())
        except Exception as error:
            LOG.debug("job %s failed", job.name, exc_info=True)
            # frames hold what the work read, and this very one the error: a circle, which only the collector would end,
            # on any thread and at any moment
            outcome = Failed(error.with_traceback(None))
        except BaseException as error:  # a panic of Rust's is no Exception, and somebody waits for the end all the same
            LOG.exception("job %s broke off", job.name)
            outcome = Failed(JobBroken(f"{type(error).__name__} in {job.name}; what it says is in the replica's log"))
        self._mailbox.call(lambda: done(outcome), urges=self._urges)
