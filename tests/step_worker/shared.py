"""Step workers that all tests of a process share: starting one takes about a second."""

from __future__ import annotations

import atexit
from functools import cache

from tests.waiting import BOUND
from tidemark_replica.render.step_worker.pool import StepWorkers


@cache
def step_workers() -> StepWorkers:
    """One process; it ends with this one."""
    made = StepWorkers(member_seconds=BOUND)
    atexit.register(made.close)
    return made
