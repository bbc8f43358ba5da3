"""What the operator asks of an orchestrator, whatever runs the replicas.

A replica runs in one *shape*: all that a change of would need another process. Where two shapes of a replica can run
beside each other, each is a replica of its own to the protocol, until the operator says that the later one takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidemark_operator.resources.manifest.replica import UpdateStrategy
from tidemark_protocol.ids import ReplicaId

STORE_SETTINGS = "TIDEMARK_STORE_SETTINGS"
"""By which a replica is told where the entries of its Secret are: a folder as Kubernetes mounts one
(storage/mounted_settings.py)."""


@dataclass(frozen=True)
class Owner:
    """A resource by name and uid; all that is made for it goes with it."""

    name: str = ""
    uid: str = ""


@dataclass(frozen=True)
class Requests:
    """What a pod is sure to have, as the API server writes it; empty: as much as its limits."""

    cpu: str = ""
    memory: str = ""


@dataclass(frozen=True)
class Executors:
    """Processes of Spark's beside the driver. `memory_bytes`: of each, Python workers included."""

    instances: int = 0
    cores: int = 2
    memory_bytes: int = 2 << 30
    requests: Requests = Requests()


@dataclass(frozen=True)
class Scratch:
    """Where arrangements lie: a volume of this size that goes with the pod, or a claim that executors share."""

    bytes: int = 20 << 30
    claim: str = ""


@dataclass(frozen=True)
class Volume:
    """A PersistentVolumeClaim, mounted at the same path in all pods of the replica."""

    claim: str
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class PodSpec:
    """What only an orchestrator of pods can give, and `credentials`: a Secret whose AWS_* entries are settings of
    the object store."""

    requests: Requests = Requests()
    executors: Executors = Executors()
    scratch: Scratch = Scratch()
    volumes: tuple[Volume, ...] = ()
    credentials: str = ""


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica that should run. `key` is its resource's uid: a later resource of the same name is another.
    `strategy` None: the orchestrator's own."""

    key: str
    namespace: str
    name: str
    cores: int
    memory_bytes: int
    instance: Owner = Owner()
    pod: PodSpec = PodSpec()
    strategy: UpdateStrategy | None = None
    spark_only: bool = False

    @property
    def engine(self) -> tuple[str, ...]:
        """What its program is told of how to compute, whatever it runs in."""
        return ("--evaluator=catalyst", "--driver-steps=0") if self.spark_only else ()


NO_EXECUTORS = "NoExecutors"
"""The reason of an end of which the executors are the cause, and nothing that was to be computed: none ever came up."""


class Phase(Enum):
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"


@dataclass(frozen=True)
class Exit:
    """How a process ended; `code` None where nobody could see it, negative for a signal. `said`: the reason, where
    somebody gave one."""

    code: int | None
    at_ms: int
    said: str = ""

    @property
    def reason(self) -> str:
        if self.said:
            return self.said
        if self.code is None or self.code >= 0:
            return "Completed" if self.code == 0 else "Crashed"
        return "Killed" if self.code == -9 else "Terminated"


@dataclass(frozen=True)
class Trouble:
    """What keeps a process from running, in words that its user knows: `reason` is CamelCase."""

    reason: str
    message: str


@dataclass(frozen=True)
class Workers:
    """The executors of a replica; one runs once its driver can have it compute. `trouble`: what keeps one from running;
    `lost`: how one ended lately."""

    wanted: int
    running: int
    trouble: Trouble | None = None
    lost: Trouble | None = None


@dataclass(frozen=True)
class Observation:
    """A process as it is now. `incarnation` is never used twice; `address` is where it listens, or will; `shape` tells
    it from others of its replica, where there can be several."""

    phase: Phase
    address: str
    incarnation: str | None = None
    started_at_ms: int | None = None
    restarts: int = 0
    last_exit: Exit | None = None
    shape: str = ""
    trouble: Trouble | None = None
    executors: Workers | None = None


class Orchestrator(Protocol):
    """All methods return at once; what they ask for happens in `run`."""

    news: asyncio.Event
    """Set when an observation may be another than before; whoever looks at them clears it."""

    async def adopt(self) -> None:
        """Sees what an earlier operator left; before anything else."""

    async def run(self) -> None:
        """Works until cancelled. Cancelling leaves the replicas running."""

    def refusal(self, replica: ReplicaSpec) -> str | None:
        """Why it cannot run this replica."""

    def ensure(self, replica: ReplicaSpec) -> None:
        """From now on it runs, in this shape; another shape replaces the process."""

    def drop(self, key: str) -> None:
        """From now on it does not run, and nothing of it is left."""

    def retain(self, keys: Collection[str]) -> None:
        """Drops every replica but these: also those that an earlier operator started."""

    def observe(self, key: str) -> tuple[Observation, ...]:
        """Its processes: the one that serves, then the one that is to take its place, if any. Empty: there is nothing
        of it."""

    def take_over(self, key: str) -> None:
        """The one that is to take the place of the other does."""


def replica_id(name: str, shape: str) -> ReplicaId:
    """What the protocol calls the process of a ComputeReplica, whose name holds no dot."""
    return ReplicaId(f"{name}.{shape}" if shape else name)


def resource_of(replica: ReplicaId) -> tuple[str, str]:
    """The ComputeReplica's name, and the shape."""
    name, _, shape = replica.partition(".")
    return name, shape
