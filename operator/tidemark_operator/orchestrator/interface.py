"""What the operator asks of an orchestrator, whatever runs the replicas."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica that should run. `key` is its resource's uid: a later resource of the same name is another."""

    key: str
    namespace: str
    name: str
    cores: int
    memory_bytes: int


class Phase(Enum):
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"


@dataclass(frozen=True)
class Exit:
    """How a process ended; `code` None where nobody could see it, negative for a signal."""

    code: int | None
    at_ms: int

    @property
    def reason(self) -> str:
        if self.code is None or self.code >= 0:
            return "Completed" if self.code == 0 else "Crashed"
        return "Killed" if self.code == -9 else "Terminated"


@dataclass(frozen=True)
class Observation:
    """A process as it is now. `incarnation` is never used twice; `address` is where it listens, or will."""

    phase: Phase
    address: str
    incarnation: str | None = None
    started_at_ms: int | None = None
    restarts: int = 0
    last_exit: Exit | None = None


class Orchestrator(Protocol):
    """All methods return at once; what they ask for happens in `run`."""

    async def run(self) -> None:
        """Works until cancelled. Cancelling leaves the replicas running."""

    def ensure(self, replica: ReplicaSpec) -> None:
        """From now on it runs, in this shape; another shape replaces the process."""

    def drop(self, key: str) -> None:
        """From now on it does not run, and nothing of it is left."""

    def retain(self, keys: Collection[str]) -> None:
        """Drops every replica but these: also those that an earlier operator started."""

    def observe(self, key: str) -> Observation | None:
        """None: there is nothing of it."""
