"""Executors that are not there: whether Spark may make them, and why it may not.

    before Spark starts    what an earlier process left is deleted; a pod is tried; refused: Spark does not start, and
                           what wanted it tries again later
    while one is missing   is there a pod for it?  yes: it starts, or waits for a node, as the pod itself says
                                                   no: a pod is tried    admitted: Spark asks_api for all of them
                                                                         refused: for no more than there are, and the
                                                                         client is told

    Status executors of the instance   {reason: QuotaExceeded, message: the API server's}     or {}: nothing is refused

A try is a creation with `dryRun`: quotas, limits, Pod Security and accounts are looked at, and nothing is made. Nobody
else tells: the API server writes no event, and Spark a line of its log. Left to itself Spark would ask again every
second, count each refusal as an executor that failed, and end the driver after some.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.errors import ExecutorsNotAdmitted, PodsUnknown
from tidemark_replica.events.jobs import Failed, Outcome, Pool
from tidemark_replica.options import Options
from tidemark_replica.spark.executor_pods import ExecutorPods, Refusal

LOG = logging.getLogger(__name__)
KIND = "executors"
POLL_SECONDS, POLL_SECONDS_MAX = 2.0, 30.0
"""Between two pending: ever longer, while one is missing. Until the first has come Spark, which is near, is asked for
it as often as ever: what becomes of a driver that dies depends on it."""
MESSAGE_LENGTH_MAX = 1000


@dataclass(frozen=True)
class Executors:
    """Of a driver that has executors in pods. `template`: a file with a whole pod, as JSON."""

    pods: ExecutorPods
    labels: str
    wanted: int
    template: Path

    @classmethod
    def of(cls, options: Options) -> Executors | None:
        if not options.executor_labels:
            return None
        conf = dict(options.spark_conf)
        pods = ExecutorPods(options.master, conf.get("spark.kubernetes.namespace", "default"))
        template = Path(conf.get("spark.kubernetes.executor.podTemplateFile", ""))
        return cls(pods, options.executor_labels, int(conf.get("spark.executor.instances", "2")), template)

    def prepare(self) -> None:
        """Before Spark starts, which finds out itself what cannot be tried. Raises ExecutorsNotDeleted,
        ExecutorsNotAdmitted."""
        self.pods.delete(self.labels)
        try:
            refused = self._try_pod()
        except PodsUnknown as error:
            LOG.warning("%s", error)
            return
        if refused:
            raise ExecutorsNotAdmitted(f"{refused.reason}: {refused.message}")

    def look(self, session: Any, *, asks_api: bool = True) -> ExecutorState:
        """`session`: Spark's, None before it has started. `asks_api`: the API server too, while one is missing."""
        registered = _registered(session)
        if registered >= self.wanted:
            return ExecutorState(registered)
        if not asks_api:
            return ExecutorState(registered, missing=True)
        try:
            refused = self._refusal_of_missing(session)
        except PodsUnknown as error:
            LOG.warning("%s", error)
            return ExecutorState(_registered(session), missing=True)
        return ExecutorState(_registered(session), missing=True, asked=True, refused=refused)

    def _refusal_of_missing(self, session: Any) -> Refusal | None:
        """Where an executor is refused; Spark is told for how many to ask. Raises PodsUnknown."""
        there, refused = self.pods.count(self.labels), None
        if there < self.wanted and (refused := self._try_pod()):
            there = self.pods.count(self.labels)  # Spark may have made it meanwhile, and have used up what there was
            refused = refused if there < self.wanted else None
        if session is not None:
            request_executors(session, self.wanted if refused is None else there)
        return refused

    def _try_pod(self) -> Refusal | None:
        if not self.template.is_file():
            return None
        return self.pods.refusal(json.loads(self.template.read_text()))


@dataclass(frozen=True)
class ExecutorState:
    registered: int
    missing: bool = False
    asked: bool = False
    """Whether the API server was, and answered."""
    refused: Refusal | None = None


class ExecutorWatch:
    """On the worker's thread; it pending on a pool, once at a time. Without executors it does nothing."""

    def __init__(
        self,
        executors: Executors | None,
        session: Callable[[], Any],
        jobs: Pool,
        respond: Callable[[Response], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executors, self._session, self._jobs, self._respond = executors, session, jobs, respond
        self._clock, self._due, self._next_count, self._pause = clock, 0.0, 0.0, POLL_SECONDS
        self._started, self._polling = False, False
        self._reported: Mapping[str, str] = {}
        self.registered_once = False
        """Whether there ever was an executor: before, nothing can have been computed."""

    def maintain(self) -> None:
        executors = self._executors
        if executors is None or self._polling:
            return
        session = self._session()
        if session is not None and not self._started:  # now that Spark can be told, and who has come be seen
            self._started, self._due, self._pause = True, self._clock(), POLL_SECONDS
        now = self._clock()
        asks_api = now >= self._due
        if asks_api or (session is not None and not self.registered_once and now >= self._next_count):
            self._polling, self._next_count = True, now + POLL_SECONDS
            look = partial(executors.look, session, asks_api=asks_api)
            self._jobs.submit("look at executors", look, partial(self._polled, asks_api))

    def report_again(self) -> None:
        """The client is a new one."""
        if self._reported:
            self._respond(Status(INSTANCE, KIND, dict(self._reported)))

    @property
    def never_registered(self) -> bool:
        """Whether there should have been executors, and none ever was."""
        return self._executors is not None and not self.registered_once

    def _polled(self, asks_api: bool, outcome: Outcome[ExecutorState]) -> None:
        self._polling = False
        if isinstance(outcome, Failed):
            LOG.debug("%s", outcome.error)  # the JVM ends, which is told by others
            if asks_api:
                self._lengthen_pause()
            return
        look = outcome.value
        self.registered_once |= look.registered > 0
        if look.asked or not look.missing:
            self._report({"reason": look.refused.reason, "message": look.refused.message} if look.refused else {})
        if not look.missing:
            self._due, self._pause = self._clock() + POLL_SECONDS, POLL_SECONDS
        elif asks_api:
            self._lengthen_pause()

    def _lengthen_pause(self) -> None:
        self._due, self._pause = self._clock() + self._pause, min(2 * self._pause, POLL_SECONDS_MAX)

    def _report(self, said: Mapping[str, str]) -> None:
        said = {name: text[:MESSAGE_LENGTH_MAX] for name, text in said.items()}
        if said != self._reported:
            self._respond(Status(INSTANCE, KIND, dict(said)))
            self._reported = said


def _registered(session: Any) -> int:
    """With this driver, now."""
    return 0 if session is None else int(session.sparkContext._jsc.sc().getExecutorIds().size())


def request_executors(session: Any, executors: int) -> None:
    """As many as Spark is to keep."""
    nowhere = session.sparkContext._jvm.PythonUtils.toScalaMap({})
    session.sparkContext._jsc.sc().requestTotalExecutors(executors, 0, nowhere)
