"""Executor affinity: each dataflow prefers one executor for its steps, where its state is open already.

    dataflow a ──> executor 1      of all executors, the one with the greatest hash of (dataflow, executor):
    dataflow b ──> executor 2      when one goes, only its dataflows move; a new one takes its share
    dataflow c ──> executor 1      (rendezvous hashing; Thaler and Ravishankar, 1998)

A preference, not a condition. Spark runs a task on the preferred executor of its RDD if it has a free core at that
moment, and elsewhere at once if not (`spark.locality.wait`): all executors can read the store. A prepared plan has no
preference and is not planned again for one: its RDD is multiplied by an RDD of one element with a preference, of which
there is one per executor. Jobs with several tasks have no preference.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NewType

REFRESH_SECONDS = 1.0
"""The age in seconds at which the list of executors is read again. A preference for an executor that is gone costs no
time."""


Executor = NewType("Executor", str)
"""An executor's id in Spark. A replacement has an id of its own."""


def preferred_executor(name: str, executors: Iterable[Executor]) -> Executor | None:
    """The executor with the greatest hash with the name (rendezvous hashing); None without executors."""
    return max(executors, key=lambda e: blake2b(f"{name}/{e}".encode(), digest_size=8).digest(), default=None)


class ExecutorAffinity:
    """The executors of one session. Safe for any threads."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._refreshed = -math.inf
        self._preferring: dict[Executor, Any] = {}

    @staticmethod
    def of(session: Any) -> ExecutorAffinity | None:
        """The affinity of a session; None if the driver is the only executor."""
        context = session.sparkContext
        return None if context.master == "local" or context.master.startswith("local[") else ExecutorAffinity(context)

    def executors(self) -> tuple[Executor, ...]:
        """The executors that Spark knows, at most REFRESH_SECONDS old."""
        with self._lock:
            self._refresh()
            return tuple(self._preferring)

    def preferring_home(self, name: str, rdd: Any) -> Any:
        """An RDD of one partition with the same rows, whose task prefers the executor of that name."""
        with self._lock:
            self._refresh()
            home = preferred_executor(name, self._preferring)
            if home is None:
                return rdd
            preferring = self._preferring[home]
        return preferring.cartesian(rdd.toJavaRDD())

    def _refresh(self) -> None:
        """Read the list of executors if it is older than REFRESH_SECONDS."""
        if time.monotonic() - self._refreshed < REFRESH_SECONDS:
            return
        found = self._registered()
        self._preferring = {e: self._preferring.get(e) or self._preferring_rdd(e) for e in found}
        self._refreshed = time.monotonic()

    def _registered(self) -> list[Executor]:
        """The executors to which Spark's scheduler assigns tasks."""
        ids: str = self._context._jsc.sc().getExecutorIds().mkString(",")
        return [Executor(id) for id in ids.split(",") if id]

    def _preferring_rdd(self, executor: Executor) -> Any:
        """An RDD of one element that prefers an executor by id. The host, Spark's next choice, is left out."""
        jvm = self._context._jvm
        locations = jvm.PythonUtils.toSeq([f"executor_none_{executor}"])
        elements = jvm.PythonUtils.toSeq([jvm.scala.Tuple2(0, locations)])
        return self._context._jsc.sc().makeRDD(elements, jvm.scala.reflect.ClassTag.Any()).toJavaRDD()


@dataclass(frozen=True)
class DataflowAffinity:
    """The affinity of one dataflow; none if `affinity` is None."""

    affinity: ExecutorAffinity | None
    name: str

    def of(self, rdd: Any, tasks: int) -> Any:
        """The RDD for a job of `tasks` tasks, with the dataflow's preference if there is one task."""
        return rdd if self.affinity is None or tasks != 1 else self.affinity.preferring_home(self.name, rdd)
