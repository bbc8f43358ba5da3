"""A real replica process, driven as the controller does it, and watched.

    tick ──► shards ──(it looks)──► steps ──► frontiers ──► `Driven`, which notes when each came

The processes are those of the replica's own tests; what they take is read from /proc, and from the replica's metrics.
"""

from __future__ import annotations

import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.replica.command_stream import ReplicaStream
from tests.replica.process import ReplicaProcess
from tests.soak.processes import Process, of_system
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, Time
from tidemark_protocol.messages.commands import (
    AllowCompaction,
    CreateDataflow,
    CreateInstance,
    Hello,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Peek,
    Schedule,
)
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import Frontiers, PeekResponse, PeekRows, Response, Status
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import ColumnType

BOUND = 600.0


class ReplicaFailed(Exception):
    """The replica in_time a failure, or did not report progress in time."""


@dataclass(frozen=True)
class Steps:
    """Steps committed so far, and the seconds they took in all, as the replica counts them."""

    count: float
    seconds: float

    @classmethod
    def asked(cls, port: int) -> Steps:
        """The metrics that are served at this port of the machine."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND) as answer:
            return cls.read(answer.read().decode())

    @classmethod
    def read(cls, metrics: str) -> Steps:
        name = "tidemark_replica_step_seconds"
        found = dict(line.split() for line in metrics.splitlines() if line.startswith((f"{name}_count", f"{name}_sum")))
        return cls(float(found[f"{name}_count"]), float(found[f"{name}_sum"]))


class Driven(ReplicaStream):
    """A replica with a client that notes how far every export is; `close` ends both."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._port = _free_port()
        self._process = ReplicaProcess(home, "--cores", "2", "--metrics-port", str(self._port), *arguments)
        self.home = home
        self._uppers, self._failure, self._answers = dict[GlobalId, int](), "", dict[str, Any]()
        super().__init__(self._process.address, BOUND)
        config = InstanceConfig("bench", str(home))
        self.send(Hello(uuid.uuid4().hex, Epoch(1, 1)), CreateInstance(config), InitializationComplete())

    def install(self, dataflows: Sequence[DataflowDescription]) -> list[GlobalId]:
        """They may run; their exports."""
        exports = [id for dataflow in dataflows for id in dataflow.export_ids]
        self.send(*map(CreateDataflow, dataflows), *map(Schedule, exports))
        return exports

    def compact(self, exports: Sequence[GlobalId], since: int) -> None:
        """Nobody reads them before."""
        self.send(*(AllowCompaction(id, Frontier.at(Time(since))) for id in exports))

    def uppers(self, exports: Sequence[GlobalId]) -> list[int]:
        """The upper that each had in time."""
        with self._changed:
            return [self._uppers.get(id, 0) for id in exports]

    def wait(self, exports: Sequence[GlobalId], upper: int, bound: float = BOUND) -> float:
        """The clock when all of them were as far; raises ReplicaFailed."""

        def arrived() -> bool:
            return bool(self._failed) or all(self._uppers.get(id, 0) >= upper for id in exports)

        with self._changed:
            in_time = self._changed.wait_for(arrived, bound)
            if self._failed or not in_time:
                behind = [(id, self._uppers.get(id)) for id in exports if self._uppers.get(id, 0) < upper][:3]
                raise ReplicaFailed(self._failed or f"not at {upper} in {bound:.0f} s: {behind}; see {self.home}")
            return time.perf_counter()

    def rows(self, dataflow: DataflowDescription, at: int, bound: float = BOUND) -> pa.Table:
        """The rows of the dataflow's index at that time. Raises ReplicaFailed."""
        (index,) = dataflow.index_exports
        every = MapFilterProject(tuple(ColumnType(c.type, c.nullable) for c in index.columns))
        asked = Peek(uuid.uuid4().hex, IndexTarget(index.id), Time(at), every, Finishing(), index.columns)
        self.send(asked)
        with self._changed:
            self._changed.wait_for(lambda: bool(self._failed) or asked.uuid in self._answers, bound)
            answer = self._answers.pop(asked.uuid, None)
        if not isinstance(answer, PeekRows):
            raise ReplicaFailed(f"{index.id} at {at}: {answer or self._failed or 'no answer'}; see {self.home}")
        return pa.ipc.open_stream(answer.data).read_all()

    def steps(self) -> Steps:
        """From the replica's metrics."""
        return Steps.asked(self._port)

    def processes(self) -> list[Process]:
        """The replica, its JVM, and all workers."""
        return of_system(self.home)

    def close(self) -> None:
        super().close()
        self._process.close()

    def keep(self, responses: Sequence[Response]) -> None:
        for response in responses:
            if isinstance(response, Frontiers) and response.write is not None:
                self._uppers[response.id] = response.write.encode()
            elif isinstance(response, PeekResponse):
                self._answers[response.uuid] = response.result
            elif isinstance(response, Status) and response.kind.endswith("failed"):
                self._failure = f"{response.id}: {response.kind}: {response.fields}"

    @property
    def _failed(self) -> str:
        """The text of a in_time failure; empty if there is none."""
        return self._failure or (f"the stream ended: {self.error}" if self._ended else "")


@contextmanager
def driven(home: Path, *arguments: str) -> Iterator[Driven]:
    """A replica for as long as the block lasts."""
    replica = Driven(home, *arguments)
    try:
        yield replica
    finally:
        replica.close()


def rss_mib(processes: Sequence[Process]) -> float:
    """Resident memory in all; pages that several share count for each."""
    return sum(process.rss for process in processes) / 2**20


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
