"""The Orchestrator protocol: the operator's view of whatever runs the replicas.

A replica runs in one *shape*: the part of its spec whose change needs a new process. An orchestrator may run two shapes
of a replica side by side. The protocol then treats each as a replica of its own, until the operator lets the newer one
take over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidemark_operator.resources.manifest.pods import Executors, Requests, ScratchVolume, Volume
from tidemark_operator.resources.manifest.replica import UpdateStrategy
from tidemark_protocol.ids import ReplicaId

STORE_SETTINGS = "TIDEMARK_STORE_SETTINGS"
"""Environment variable with the folder that holds the entries of the replica's Secret, one file for each entry, as
Kubernetes mounts a Secret (storage/mounted_settings.py)."""

SOURCE_SECRETS = "TIDEMARK_SOURCE_SECRETS"
"""Environment variable with the folder that holds one folder for each Secret of spec.sourceSecrets, by its name, as
Kubernetes mounts a Secret (storage/source_secrets.py)."""

ICEBERG = "TIDEMARK_ICEBERG"
"""Environment variable with the Iceberg catalogue of the instance, in JSON (published/iceberg_catalogue.py)."""

SOURCE_DATA = "TIDEMARK_SOURCE_DATA"
"""Environment variable with the folder in which replicas of one machine share the data that load generators make
(storage/tpch/initial.py)."""


@dataclass(frozen=True)
class Owner:
    """The owner of generated objects, by name and uid. Deleting the owner deletes the objects."""

    name: str = ""
    uid: str = ""


@dataclass(frozen=True)
class PodSpec:
    """The fields that only an orchestrator of pods supports, and Secrets of the namespace. `credentials`: the name of
    the Secret whose AWS_* entries configure the object store. `source_secrets`: the sorted names of those that sources
    use. `iceberg`: the Iceberg catalogue of the instance, in JSON; empty: none."""

    requests: Requests = Requests()
    executors: Executors = Executors()
    scratch: ScratchVolume = ScratchVolume()
    volumes: tuple[Volume, ...] = ()
    credentials: str = ""
    source_secrets: tuple[str, ...] = ()
    iceberg: str = ""


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica that should run. `key` is the uid of its resource, which a later resource of the same name does not
    share. `strategy` None: the orchestrator's default."""

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
        """Command-line options that select the evaluator; every orchestrator passes them."""
        return ("--evaluator=catalyst", "--driver-steps=0") if self.spark_only else ()


NO_EXECUTORS = "NoExecutors"
"""Exit reason of a driver whose executors never started. No dataflow is the cause of such an exit."""


class Phase(Enum):
    """The phase of a process; BACKING_OFF: it ended, and waits for its next start."""

    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"


@dataclass(frozen=True)
class Exit:
    """The end of a process. `code`: the exit code, negative for a signal, None if unknown. `at_ms`: milliseconds since
    1970. `stated_reason`: the reason that the kubelet or the replica gave, else empty."""

    code: int | None
    at_ms: int
    stated_reason: str = ""

    @property
    def reason(self) -> str:
        """A CamelCase reason for a condition."""
        if self.stated_reason:
            return self.stated_reason
        if self.code is None or self.code >= 0:
            return "Completed" if self.code == 0 else "Crashed"
        return "Killed" if self.code == -9 else "Terminated"


@dataclass(frozen=True)
class ProcessProblem:
    """The reason why a process does not run, for a condition: a CamelCase `reason`, and a message for the user."""

    reason: str
    message: str


@dataclass(frozen=True)
class Workers:
    """The executors of a replica. An executor counts as running once it has registered with its driver. `problem`: why
    one of them does not run."""

    wanted: int
    running: int
    problem: ProcessProblem | None = None


@dataclass(frozen=True)
class Observation:
    """The current state of a process. `address`: where it listens, or will listen. `incarnation`: a unique name of this
    run of the process. `started_at_ms`: milliseconds since 1970. `shape`: empty where a replica has one process
    only."""

    phase: Phase
    address: str
    incarnation: str | None = None
    started_at_ms: int | None = None
    restarts: int = 0
    last_exit: Exit | None = None
    shape: str = ""
    problem: ProcessProblem | None = None
    executors: Workers | None = None


class Orchestrator(Protocol):
    """Runs replicas. Synchronous methods record a request and return at once; `run` carries the requests out."""

    news: asyncio.Event
    """Set when an observation may have changed. The reader of the observations clears it."""

    async def adopt(self) -> None:
        """Find the processes that an earlier operator left. Call this before every other method."""

    async def run(self) -> None:
        """Start and end processes until cancelled. A cancellation leaves the replicas running."""

    def refusal(self, replica: ReplicaSpec) -> str | None:
        """The reason why this orchestrator cannot run the replica; None: it can."""

    def ensure(self, replica: ReplicaSpec) -> None:
        """Run the replica in the shape of this spec. A changed shape replaces the process."""

    def drop(self, key: str) -> None:
        """End the replica and remove everything that was made for it."""

    def retain(self, keys: Collection[str]) -> None:
        """Drop every other replica, including those that an earlier operator started."""

    def observe(self, key: str) -> tuple[Observation, ...]:
        """The processes of a replica: first the one that serves, then its successor, if any. Empty: it has none."""

    def take_over(self, key: str) -> None:
        """Let the successor serve, and end the process before it."""


def replica_id(name: str, shape: str) -> ReplicaId:
    """The protocol's id of a process. The name of a ComputeReplica holds no dot, so the id is unambiguous."""
    return ReplicaId(f"{name}.{shape}" if shape else name)


def resource_of(replica: ReplicaId) -> tuple[str, str]:
    """The inverse of `replica_id`: the ComputeReplica's name, and the shape."""
    name, _, shape = replica.partition(".")
    return name, shape
