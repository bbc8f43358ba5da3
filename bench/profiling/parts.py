"""A step's time by what it is spent on: what the driver knows of its jobs, and Python calls of themselves.

    run    ├── submit, launch ──┤                                      ├── to the driver ──┤     one job, or one order
    calls                       ├─ call 0 of task 0 ─┤ ├─ call 1 ... ──┤
                                ├─ call 0 of task 1 ───┤

Where several calls are under way at once, a moment is divided among them: so parts add up to the step by the clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Spent = defaultdict[str, float]
SPARK, WORKER = "spark", "worker"
_BEFORE = {SPARK: "submit and launch, to the first Python call", WORKER: "order, to the call"}
_BEHIND = {SPARK: "from the last Python call to the driver", WORKER: "from the call to the driver"}
_BETWEEN = "between Python calls, and waiting"


@dataclass(frozen=True)
class Run:
    """A job, or an order to a step worker, as the driver waited for it; milliseconds by the machine's clock."""

    where: str
    begin: float
    end: float


@dataclass(frozen=True)
class Call:
    """A stage's Python call; `spent`: milliseconds by label, which add up to about its time."""

    stage: str
    begin: float
    end: float
    spent: dict[str, float]


@dataclass
class StepRecord:
    """The driver's record of one step: its own times by label, and the calls that it waited for."""

    spent: Spent = field(default_factory=lambda: Spent(float))
    runs: list[Run] = field(default_factory=list)

    def forget(self) -> None:
        """Another step begins."""
        self.spent.clear()
        self.runs.clear()

    @property
    def jobs(self) -> int:
        return sum(run.where == SPARK for run in self.runs)


def parts(record: StepRecord, calls: Sequence[Call], phases: dict[str, float]) -> Spent:
    """The step's milliseconds by label; they add up to those of its `phases`."""
    found = Spent(float, {f"driver: {name}": phases[name] for name in ("listen", "plan", "commit")})
    found |= {f"driver: {name}": took for name, took in record.spent.items()}
    waited = sum(run.end - run.begin for run in record.runs)
    found["driver: all else"] = phases["run"] - waited - sum(record.spent.values())
    for run in record.runs:
        for label, took in _of_run(run, [c for c in calls if run.begin <= c.begin <= run.end]).items():
            found[label] += took
    return found


def tasks(calls: Sequence[Call]) -> int:
    """In how many tasks a stage ran, at most."""
    return max(Counter(call.stage for call in calls).values(), default=0)


def _of_run(run: Run, calls: Sequence[Call]) -> Spent:
    found = Spent(float)
    if not calls:  # a worker was lost before its call
        found[f"{run.where}: {_BETWEEN}"] = run.end - run.begin
        return found
    begin, end = min(call.begin for call in calls), max(call.end for call in calls)
    for call, share in zip(calls, shares(calls), strict=True):
        for label, took in call.spent.items():
            found[label] += took * share
    between = end - begin - sum(found.values())
    found[f"{run.where}: {_BEFORE[run.where]}"] = begin - run.begin
    found[f"{run.where}: {_BEHIND[run.where]}"] = run.end - end
    found[f"{run.where}: {_BETWEEN}"] = between
    return found


def shares(calls: Sequence[Call]) -> list[float]:
    """The counted part of each call's time: all of it if no other call ran."""
    counted = [0.0 for _ in calls]
    for begin, end in pairwise(sorted({mark for call in calls for mark in (call.begin, call.end)})):
        at_work = [n for n, call in enumerate(calls) if call.begin <= begin and end <= call.end]
        for n in at_work:
            counted[n] += (end - begin) / len(at_work)
    return [count / max(call.end - call.begin, 1e-9) for count, call in zip(counted, calls, strict=True)]
