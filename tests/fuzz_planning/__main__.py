"""`python -m tests.fuzz_planning`: as many mutated statements as TIDEMARK_FUZZ_STATEMENTS says, through the service's
workers.

    progress file   seed, the next number, the counts, the defects so far: a campaign that was stopped goes on there
    last line       JSON: statements, seconds, outcomes, defects; the exit code is 1 where there are defects

A worker that dies, or needs more than PLAN_SECONDS of processor time, is a defect, and is replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz_planning.campaign import Campaign, Request
from tests.fuzz_planning.corpus import corpus
from tidemark_planner.service.worker_pool import WorkerPool
from tidemark_planner.service.worker_process import PlanLimits, Worker, adopt_orphans
from tidemark_planner.service.worker_protocol import PLAN, QUERY, REUSABLE
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.messages.planning import Planned, PlannedOneShot, PlannedPeek, PlanRequest, Refused
from tidemark_protocol.plan.codec import decode, encode

STATEMENTS = int(os.environ.get("TIDEMARK_FUZZ_STATEMENTS", "100000"))
SEED = int(os.environ.get("TIDEMARK_FUZZ_SEED", "0"))
PROGRESS = Path(f".tidemark/fuzz-planning-{SEED}.json")
PLAN_SECONDS, ANSWER_SECONDS = 60.0, 600.0
"""The limit of processor time, and the wait for the answer of a planner that hangs."""
PROGRESS_SECONDS = 30.0


class ThroughWorkers:
    """The planning functions in worker processes, as the service runs them."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def __call__(self, request: Request) -> object:
        """The plan or the refusal. Raises WorkerEnded, WorkerTimeout, AssertionError for a spent worker."""
        kind = PLAN if isinstance(request, PlanRequest) else QUERY
        limits = PlanLimits(PLAN_SECONDS, time.monotonic() + ANSWER_SECONDS)
        answer = self._pool.ask(kind + encode(request), limits, ANSWER_SECONDS)
        outcome = _decoded(answer[1:])
        assert answer[:1] == REUSABLE, f"the worker cannot plan again: {outcome}"
        return outcome


def _decoded(outcome: bytes) -> object:
    for kind in (Refused, Planned, PlannedOneShot, PlannedPeek):
        with contextlib.suppress(MalformedPlan):
            return decode(outcome, kind)
    raise AssertionError(f"this is no outcome: {outcome[:200]!r}")


def main() -> int:
    logging.disable(logging.ERROR)
    adopt_orphans()
    done = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {"next": 0, "outcomes": {}, "defects": []}
    began, at = time.monotonic(), int(done["next"])
    with TemporaryDirectory() as folder:
        numbers = itertools.count()
        pool = WorkerPool(lambda: Worker(Path(folder) / str(next(numbers))), 1)
        pool.begin()
        try:
            pool.ready.wait(ANSWER_SECONDS)
            campaign = Campaign(SEED, corpus(), ThroughWorkers(pool), Counter(done["outcomes"]))
            while at < STATEMENTS:
                at = _run(campaign, at, done)
                _keep(at, campaign, done)
        finally:
            pool.close()
    summary = {"statements": at, "seed": SEED, "seconds": round(time.monotonic() - began), **done}
    print(json.dumps({**summary, "defects": len(done["defects"])}))
    return 1 if done["defects"] else 0


def _run(campaign: Campaign, first: int, done: dict[str, Any]) -> int:
    """The number after the last statement of some PROGRESS_SECONDS."""
    began = time.monotonic()
    for number in range(first, STATEMENTS):
        for defect in campaign.run([number]):
            print(defect, file=sys.stderr)
            done["defects"].append(str(defect))
        if time.monotonic() - began > PROGRESS_SECONDS:
            return number + 1
    return STATEMENTS


def _keep(at: int, campaign: Campaign, done: dict[str, Any]) -> None:
    done.update(next=at, outcomes=dict(campaign.outcomes.most_common()))
    PROGRESS.parent.mkdir(exist_ok=True)
    partial = PROGRESS.with_suffix(".partial")
    partial.write_text(json.dumps(done))
    partial.replace(PROGRESS)
    print(f"{at:,} of {STATEMENTS:,} statements, {len(done['defects'])} defects", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
