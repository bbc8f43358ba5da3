"""A job reports its end, whatever it raises."""

from __future__ import annotations

from typing import Any

import pytest

from tests.replica.worker_loop import Loop
from tidemark_replica.events.jobs import Failed, JobBroken, Outcome


class Panic(BaseException):
    """A panic as a library of Rust raises it: no `Exception`."""


@pytest.mark.parametrize("raised", [ValueError("alice"), Panic("alice"), SystemExit(1)], ids=lambda e: type(e).__name__)
def test_the_end_of_a_job_is_told_whatever_it_raises(raised: BaseException) -> None:
    """An unforeseen failure says its type, and the log the rest."""
    loop, ended = Loop(), list[Outcome[Any]]()

    def work() -> None:
        raise raised

    loop.jobs.submit("look", work, ended.append)
    loop.run_until(lambda: ended)

    (failed,) = ended
    assert isinstance(failed, Failed)
    if isinstance(raised, Exception):
        assert failed.error is raised
    else:
        assert isinstance(failed.error, JobBroken)
        assert str(failed.error).startswith(f"{type(raised).__name__} in look")
