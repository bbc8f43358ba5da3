"""Running fragments as Spark jobs, one at a time. Only their reports count; the tag of their step cancels them.

A cancellation that arrives before Spark knows the job has no effect, so it is repeated until the step has ended. Each
step has a tag of its own: a cancellation that arrives late reaches no job of the next step.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Any

from tidemark_replica.render.errors import OutOfMemory, StepCancelled, StepFailed
from tidemark_replica.render.execution.executor_affinity import DataflowAffinity
from tidemark_replica.render.execution.runner import FragmentRun, complete_report
from tidemark_replica.render.execution.step_shape import FragmentShape, FragmentShapes
from tidemark_replica.render.plan.jvm_frames import pipelines_of
from tidemark_replica.render.task.description import PROPERTY, StageReport
from tidemark_replica.values.failure_text import public_spark_text

_VANISHED = {
    "Python worker exited unexpectedly": "a Python worker of Spark vanished",
    "exit code 137": "an executor was killed",
}
_CRASHED = re.compile(r"Fatal Python error: (\w+(?: \w+)*)")
_LOST_FILE = (
    "could not read on in a file that it had mapped (SIGBUS): its storage is away or full, or the file was taken away"
)
# Spark looks for it among a job's properties, not in its session, where a plan is executed as it is.
_SAYS_WHERE = ("spark.python.worker.faulthandler.enabled", "true")
BUS_ERROR = "Bus error"
_CANCEL_SECONDS = 0.05


@dataclass(frozen=True)
class _Step:
    """A step whose jobs carry `tag`."""

    tag: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class SparkRunner:
    """Runs the prepared plans of one dataflow; see `runner.Runner`."""

    def __init__(self, session: Any, tag: str, shapes: FragmentShapes, home: DataflowAffinity) -> None:
        self._context, self._tag, self._shapes, self._home = session.sparkContext, tag, shapes, home
        self._step = _Step(tag)
        self._step.ended.set()
        self._steps = 0
        self._closed = False
        self.jobs = 0

    @property
    def cancelled(self) -> bool:
        """Whether the current step, or the last one, has been cancelled."""
        return self._step.cancelled.is_set()

    def begin(self) -> None:
        self._steps += 1
        self._step = _Step(f"{self._tag}-{self._steps}")
        if self._closed:  # asked after the step is set: `close` cancels the step that it finds
            self._step.ended.set()
            raise StepCancelled(f"{self._tag} has been dropped")

    def end(self) -> None:
        self._step.ended.set()

    def run(self, work: FragmentRun) -> StageReport:
        """Run a fragment as one job."""
        self.jobs += 1
        shape = self._shapes.of(work)
        work.on_start(shape.stage, shape.tasks)
        self._run(work, shape)
        return complete_report(work.description.parent, pipelines_of(shape.stage), work.label, shape.tasks)

    def cancel(self) -> None:
        step = self._step
        if not step.ended.is_set():
            step.cancelled.set()
            threading.Thread(
                target=self._cancel_until_ended, args=(step,), name=f"cancel {step.tag}", daemon=True
            ).start()

    def close(self) -> None:
        self._closed = True
        self.cancel()

    def _run(self, work: FragmentRun, shape: FragmentShape) -> None:
        label, step = work.label, self._step
        if step.cancelled.is_set():
            raise StepCancelled(f"{label} was cancelled")
        context = self._context
        context.setLocalProperty(PROPERTY, str(work.description))
        context.setLocalProperty(*_SAYS_WHERE)
        context.addJobTag(step.tag)
        try:
            self._home.of(shape.plan.execute(), shape.tasks).count()
        except Exception as cause:
            if step.cancelled.is_set():
                raise StepCancelled(f"{label} was cancelled") from cause
            raise failure(label, cause, context.master) from cause
        finally:
            context.removeJobTag(step.tag)
            context.setLocalProperty(PROPERTY, None)

    def _cancel_until_ended(self, step: _Step) -> None:
        while not step.ended.wait(_CANCEL_SECONDS):
            self._context.cancelJobsWithTag(step.tag)


def failure(label: str, cause: Exception, master: str) -> StepFailed:
    """The StepFailed of an exception of Spark.

    A Python worker that crashes reports where. A worker that is killed reports nothing; neither does Kubernetes if the
    kernel kills one process of a container that lives on.
    """
    text = str(cause)
    if crashed := _CRASHED.search(text):
        crash = f"crashed ({crashed[1]}): where, is in the replica's log"
        return StepFailed(
            f"{label} failed: a Python worker of Spark {_LOST_FILE if crashed[1] == BUS_ERROR else crash}"
        )
    vanished = next((cause_text for sign, cause_text in _VANISHED.items() if sign in text), None)
    if vanished is None:
        return StepFailed(f"{label} failed: {public_spark_text(text, type(cause).__name__)}")
    field = "spec.resources.limits.memory" if master.startswith("local") else "spec.executors.resources"
    return OutOfMemory(
        f"{label} failed: {vanished}, as one does that takes more memory than there is: give the replica more "
        f"({field}), or let the view keep less"
    )
