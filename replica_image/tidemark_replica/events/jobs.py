"""Jobs: work that runs on a pool and continues on the command loop.

    command loop:  submit(work, done) ──► pool: work() ──► mailbox ──► command loop: done(outcome)

A job that is cancelled before it starts never runs. A job that runs must check `cancelled` itself. `done` is called in
every case, whatever `work` raises, so that resources can be released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidemark_replica.errors import ReplicaError
from tidemark_replica.events.mailbox import Mailbox

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class JobCancelled(ReplicaError):
    """The job was cancelled before it started."""


class JobBroken(ReplicaError):
    """The job raised an error that is not an Exception (a panic of a Rust library, for example)."""


@dataclass(frozen=True)
class Done(Generic[T]):
    value: T


@dataclass(frozen=True)
class Failed:
    error: Exception


Outcome = Done[T] | Failed


class Job:
    """One piece of work. The work itself may read `cancelled`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cancelled = False  # nobody waits for it, and an event costs as much as the rest of a short job

    def cancel(self) -> None:
        self.cancelled = True


class Pool(Protocol):
    """An executor of jobs."""

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job: ...


class WakingJobs:
    """A pool that calls `wake` after the end of each job."""

    def __init__(self, pool: Pool, wake: Callable[[], None]) -> None:
        self._pool, self._wake = pool, wake

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job:
        def on_end(outcome: Outcome[T]) -> None:
            try:
                done(outcome)
            finally:
                self._wake()

        return self._pool.submit(name, work, on_end)


class Jobs:
    """A pool with a bounded number of threads. Its queue is bounded by its callers: one job per dataflow, per shard,
    per step with output. `needs_maintenance`: the end of a job triggers maintenance of the command loop."""

    def __init__(self, mailbox: Mailbox, name: str, threads: int, *, needs_maintenance: bool = True) -> None:
        self._mailbox, self._needs_maintenance = mailbox, needs_maintenance
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job:
        job = Job(name)
        self._pool.submit(self._run, job, work, done)
        return job

    def shutdown(self) -> None:
        """Refuses new jobs, drops those that wait, and does not wait for those that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, job: Job, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        outcome: Outcome[T]
        try:
            outcome = Failed(JobCancelled(job.name)) if job.cancelled else Done(work())
        except Exception as error:
            LOG.debug("job %s failed", job.name, exc_info=True)
            # the traceback's frames hold the work's data and the error itself: without this cycle the data are freed
            # at once, and not by the garbage collector on some thread
            outcome = Failed(error.with_traceback(None))
        except BaseException as error:  # Rust panics are no Exception; `done` must be called all the same
            LOG.exception("job %s broke off", job.name)
            outcome = Failed(JobBroken(f"{type(error).__name__} in {job.name}; see the replica's log"))
        self._mailbox.call(lambda: done(outcome), needs_maintenance=self._needs_maintenance)
