"""What cannot be answered yet is looked at again, for a while.

    nothing is complete    COMMON_TIME_SECONDS    what the operator knows of frontiers is a moment old
    nobody answers         REPLICA_SECONDS        a replica that was lost is started again, or found again

An instance without replicas is refused at once: nobody is on the way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from tidemark_operator.errors import NobodyAnswers, NotYet, QueryRefused
from tidemark_operator.fleet.running import RunningInstance

T = TypeVar("T")
COMMON_TIME_SECONDS = 10.0
REPLICA_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.1


async def when_possible(query: Callable[[], T], seconds: float | None = None) -> T:
    """What `query` makes, as soon as it raises NotYet no more; raises what it raises, at the latest after a while.
    `seconds`: for how long a complete time is waited for."""
    patience: dict[type[NotYet], float] = {NobodyAnswers: REPLICA_SECONDS}
    ends: dict[type[NotYet], float] = {}
    while True:
        try:
            return query()
        except NotYet as refused:
            now, kind = time.monotonic(), type(refused)
            mine = patience.get(kind, COMMON_TIME_SECONDS if seconds is None else seconds)
            if now > ends.setdefault(kind, now + mine):
                raise
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


def must_answer(running: RunningInstance, what: str) -> None:
    """Raises NobodyAnswers where none of the instance's replicas does, QueryRefused where it has none. `what` cannot be
    done then."""
    if running.online:
        return
    if not running.replicas:
        raise QueryRefused(f"{what}: ComputeInstance {running.name} has no replica that is to run")
    raise NobodyAnswers(
        f"{what}: no replica of ComputeInstance {running.name} answers (`kubectl describe computereplicas` says why)"
    )
