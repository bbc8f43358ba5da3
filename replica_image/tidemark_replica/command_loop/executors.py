"""Missing executors: whether the API server admits executor pods, and why not.

    before Spark starts    pods of an earlier process are deleted; a pod is tried; refused: Spark does not start and its
                           start is retried
    while one is missing   has it a pod?   yes: it starts or waits for a node, as the pod's status says
                                           no:  a pod is tried    admitted: Spark requests all executors
                                                                  refused: Spark requests as many as have pods;
                                                                  the client gets the status

    Status executors of the instance   {reason: QuotaExceeded, message: the API server's}     or {}: no refusal

A try is a creation with `dryRun`: the API server checks quotas, limits, Pod Security and accounts, and creates nothing.
No event reports a refusal, only a line in Spark's log. By itself Spark would request a refused executor every second,
count each refusal as a failed executor, and end the driver after some.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.errors import ExecutorsNotAdmitted, PodsUnknown
from tidemark_replica.events.jobs import Failed, Outcome, Pool
from tidemark_replica.options import ReplicaOptions
from tidemark_replica.spark.executor_pods import ExecutorPods, PodRefusal

LOG = logging.getLogger(__name__)
KIND = "executors"
POLL_SECONDS, POLL_SECONDS_MAX = 2.0, 30.0
"""Seconds between two polls: from POLL_SECONDS, doubled while an executor is missing, to POLL_SECONDS_MAX. Spark itself
is asked every POLL_SECONDS until the first executor registers: the exit code of a driver that dies depends on it."""
MESSAGE_LENGTH_MAX = 1000


@dataclass(frozen=True)
class Executors:
    """The executors of a driver that runs them as pods. `template`: a file with a whole pod as JSON."""

    pods: ExecutorPods
    labels: str
    wanted: int
    template: Path

    @classmethod
    def of(cls, options: ReplicaOptions) -> Executors | None:
        if not options.executor_labels:
            return None
        conf = dict(options.spark_conf)
        pods = ExecutorPods(options.master, conf.get("spark.kubernetes.namespace", "default"))
        template = Path(conf.get("spark.kubernetes.executor.podTemplateFile", ""))
        return cls(pods, options.executor_labels, int(conf.get("spark.executor.instances", "2")), template)

    def prepare(self) -> None:
        """Delete the executors of earlier drivers, and try a pod, before Spark starts. Raises ExecutorsNotDeleted,
        ExecutorsNotAdmitted."""
        self.pods.delete(self.labels)
        try:
            refused = self._try_pod()
        except PodsUnknown as error:
            LOG.warning("%s", error)
            return
        if refused:
            raise ExecutorsNotAdmitted(f"{refused.reason}: {refused.message}")

    def observe(self, session: Any, *, asks_api: bool = True) -> ExecutorState:
        """The present state. `session`: Spark's, None before it has started. `asks_api`: ask the API server too, while
        one is missing."""
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

    def _refusal_of_missing(self, session: Any) -> PodRefusal | None:
        """The refusal of a missing executor, if any. Tells Spark how many to request. Raises PodsUnknown."""
        there, refused = self.pods.count(self.labels), None
        if there < self.wanted and (refused := self._try_pod()):
            there = self.pods.count(self.labels)  # Spark may have created it meanwhile and used up the quota
            refused = refused if there < self.wanted else None
        if session is not None:
            request_executors(session, self.wanted if refused is None else there)
        return refused

    def _try_pod(self) -> PodRefusal | None:
        if not self.template.is_file():
            return None
        return self.pods.refusal(json.loads(self.template.read_text()))


@dataclass(frozen=True)
class ExecutorState:
    """The number of executors that are registered with Spark, and whether one is missing or refused."""

    registered: int
    missing: bool = False
    asked: bool = False
    """Whether the API server was asked and answered."""
    refused: PodRefusal | None = None


class ExecutorWatch:
    """Runs on the command loop and polls on a pool, once at a time. Does nothing without executors."""

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
        self.registered_once = False
        """Whether an executor has ever registered; before that, nothing can have been computed."""

    def maintain(self) -> None:
        executors = self._executors
        if executors is None or self._polling:
            return
        session = self._session()
        if session is not None and not self._started:  # from now on Spark knows its executors
            self._started, self._due, self._pause = True, self._clock(), POLL_SECONDS
        now = self._clock()
        asks_api = now >= self._due
        if asks_api or (session is not None and not self.registered_once and now >= self._next_count):
            self._polling, self._next_count = True, now + POLL_SECONDS
            poll = partial(executors.observe, session, asks_api=asks_api)
            self._jobs.submit("poll executors", poll, partial(self._polled, asks_api))

    @property
    def never_registered(self) -> bool:
        """Whether executors are configured and none has ever registered."""
        return self._executors is not None and not self.registered_once

    def _polled(self, asks_api: bool, outcome: Outcome[ExecutorState]) -> None:
        self._polling = False
        if isinstance(outcome, Failed):
            LOG.debug("%s", outcome.error)  # the JVM ends; the command loop notices that itself
            if asks_api:
                self._lengthen_pause()
            return
        state = outcome.value
        self.registered_once |= state.registered > 0
        if state.asked or not state.missing:
            refused = state.refused
            told = {"reason": refused.reason, "message": refused.message[:MESSAGE_LENGTH_MAX]} if refused else {}
            self._respond(Status(INSTANCE, KIND, told))
        if not state.missing:
            self._due, self._pause = self._clock() + POLL_SECONDS, POLL_SECONDS
        elif asks_api:
            self._lengthen_pause()

    def _lengthen_pause(self) -> None:
        self._due, self._pause = self._clock() + self._pause, min(2 * self._pause, POLL_SECONDS_MAX)


def _registered(session: Any) -> int:
    """The number of executors that are registered with this driver."""
    return 0 if session is None else int(session.sparkContext._jsc.sc().getExecutorIds().size())


def request_executors(session: Any, executors: int) -> None:
    """Sets the number of executors that Spark keeps."""
    nowhere = session.sparkContext._jvm.PythonUtils.toScalaMap({})
    session.sparkContext._jsc.sc().requestTotalExecutors(executors, 0, nowhere)
