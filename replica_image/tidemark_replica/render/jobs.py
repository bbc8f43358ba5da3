"""One dataflow's Spark jobs: run one at a time, cancelled by tag, and believed only by their reports.

A cancel that arrives before Spark knows the job is lost, so it is repeated until the job is gone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark_replica.render.description import PROPERTY, Report
from tidemark_replica.render.errors import StepCancelled, StepFailed

_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+)$", re.MULTILINE)
_CANCEL_SECONDS = 0.05


class StepJobs:
    """Runs prepared plans for one dataflow."""

    def __init__(self, session: Any, tag: str) -> None:
        self._context, self._tag = session.sparkContext, tag
        self._idle = threading.Event()
        self._idle.set()
        self._cancelled = threading.Event()
        self._ended = False

    def begin(self) -> None:
        """A step begins: what was cancelled was the one before."""
        if self._ended:
            raise StepCancelled(f"{self._tag} has been dropped")
        self._cancelled.clear()
        self._idle.clear()

    def end(self) -> None:
        """The step is over."""
        self._idle.set()

    def run(self, plan: Any, description: Path, what: str) -> None:
        """One job on this thread; raises StepFailed or StepCancelled."""
        if self._cancelled.is_set():
            raise StepCancelled(f"{what} was cancelled")
        context = self._context
        context.setLocalProperty(PROPERTY, str(description))
        context.addJobTag(self._tag)
        try:
            plan.executeCollectPublic()
        except Exception as cause:
            if self._cancelled.is_set():
                raise StepCancelled(f"{what} was cancelled") from cause
            raise StepFailed(f"{what} failed: {reason(str(cause))}") from cause
        finally:
            context.removeJobTag(self._tag)
            context.setLocalProperty(PROPERTY, None)

    def cancel(self) -> None:
        """Ends the running step's job; returns at once."""
        if not self._idle.is_set():
            self._cancelled.set()
            threading.Thread(target=self._keep_cancelling, name=f"cancel {self._tag}", daemon=True).start()

    def close(self) -> None:
        """No step runs from now on."""
        self._ended = True
        self.cancel()

    def _keep_cancelling(self) -> None:
        while not self._idle.wait(_CANCEL_SECONDS) and self._cancelled.is_set():
            self._context.cancelJobsWithTag(self._tag)


def believed(folder: Path, stages: Sequence[str], what: str) -> Report:
    """The reports of one attempt that reported every stage, as one; raises StepFailed when there is none."""
    attempts = sorted(int(p.name.split(".")[1]) for p in folder.glob(f"{stages[-1]}.*.report"))
    for attempt in attempts:
        paths = [folder / f"{stage}.{attempt}.report" for stage in stages]
        if all(path.exists() for path in paths):
            return _together([Report.read(path) for path in paths])
    raise StepFailed(f"{what} ended without a complete report of its stages {', '.join(stages)}; run it again")


def _together(reports: Sequence[Report]) -> Report:
    written = {a: refs for r in reports for a, refs in r.written.items()}
    published = {name: p for r in reports for name, p in r.published.items()}
    merges, fed_back = tuple(m for r in reports for m in r.merges), tuple(f for r in reports for f in r.fed_back)
    return Report(reports[0].attempt, written, merges, published, fed_back)


def reason(text: str) -> str:
    """The last Python error in Spark's message, else its first line."""
    head = text.split("\n\tat ")[0]
    found = _PYTHON_ERROR.findall(head)
    return f"{found[-1][0]}: {found[-1][1]}" if "Traceback" in head and found else text.splitlines()[0][:500]
