"""Home executors: where a dataflow's steps land, so that the state that they read is open there already.

    dataflow a ──> executor 1      of all that are there, the one whose hash with the dataflow's name is the greatest:
    dataflow b ──> executor 2      when one goes, its dataflows move and the others stay; one that comes takes its share
    dataflow c ──> executor 1

A wish, not a condition. Spark takes a task to the executor that its RDD prefers if there is room at that moment, and
elsewhere at once if not (`spark.locality.wait`, see `spark_settings`): state is in the store that all executors share.
A prepared plan prefers nothing, and is not planned anew for its home: its RDD is multiplied by an RDD of one element
that does prefer, of which there is one for each executor. A job in several tasks has all executors for its home.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NewType

LOOK_SECONDS = 1.0
"""How old it may be what is known of executors. One that has gone since costs no time: Spark prefers nothing then."""


Executor = NewType("Executor", str)
"""Its id, as Spark has it; one that is started in the place of another has an id of its own."""


def preferred_executor(name: str, executors: Iterable[Executor]) -> Executor | None:
    """Whose home the executor is that has the greatest hash with the name (rendezvous hashing)."""
    return max(executors, key=lambda e: blake2b(f"{name}/{e}".encode(), digest_size=8).digest(), default=None)


class ExecutorAffinity:
    """Of one session's dataflows; from any thread."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._looked = -math.inf
        self._preferring: dict[Executor, Any] = {}

    @staticmethod
    def of(session: Any) -> ExecutorAffinity | None:
        """None where there are no executors but the driver."""
        context = session.sparkContext
        return None if context.master == "local" or context.master.startswith("local[") else ExecutorAffinity(context)

    def executors(self) -> tuple[Executor, ...]:
        """That are there, or were a moment ago."""
        with self._lock:
            self._look()
            return tuple(self._preferring)

    def at_home(self, name: str, rdd: Any) -> Any:
        """An RDD of one partition, and as many rows, whose task goes to the home of that name."""
        with self._lock:
            self._look()
            home = preferred_executor(name, self._preferring)
            if home is None:
                return rdd
            preferring = self._preferring[home]
        return preferring.cartesian(rdd.toJavaRDD())

    def _look(self) -> None:
        """Now and then."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        found = self._registered()
        self._preferring = {e: self._preferring.get(e) or self._one_that_prefers(e) for e in found}
        self._looked = time.monotonic()

    def _registered(self) -> list[Executor]:
        """Those to which Spark's scheduler gives tasks."""
        said: str = self._context._jsc.sc().getExecutorIds().mkString(",")
        return [Executor(id) for id in said.split(",") if id]

    def _one_that_prefers(self, executor: Executor) -> Any:
        """By its id. The host, which Spark would take next, is left out: nothing is open there."""
        jvm = self._context._jvm
        locations = jvm.PythonUtils.toSeq([f"executor_none_{executor}"])
        elements = jvm.PythonUtils.toSeq([jvm.scala.Tuple2(0, locations)])
        return self._context._jsc.sc().makeRDD(elements, jvm.scala.reflect.ClassTag.Any()).toJavaRDD()


@dataclass(frozen=True)
class DataflowAffinity:
    """Of one dataflow; nowhere, if there are no homes."""

    affinity: ExecutorAffinity | None
    name: str

    def of(self, rdd: Any, tasks: int) -> Any:
        """The RDD of a job in so many tasks, to be counted."""
        return rdd if self.affinity is None or tasks != 1 else self.affinity.at_home(self.name, rdd)
