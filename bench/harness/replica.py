"""A real replica process, driven as the controller does it, and watched.

    tick ──► shards ──(it looks)──► steps ──► frontiers ──► `Driven`, which notes when each came

The processes are those of the replica's own tests; what they take is read from /proc, and from the replica's metrics.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.replica.process import EAGER, ReplicaProcess
from tests.soak.processes import Process, of_system
from tidemark_protocol.commands import (
    AllowCompaction,
    Command,
    CreateDataflow,
    CreateInstance,
    Hello,
    InitializationComplete,
    InstanceConfig,
    Schedule,
)
from tidemark_protocol.dataflow import DataflowDescription
from tidemark_protocol.frames import GRPC_OPTIONS, Unpacker, pack_commands
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, Time
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.pb.compute_pb2_grpc import ComputeStub
from tidemark_protocol.responses import Frontiers, Response, Status

BOUND = 600.0


class ReplicaTrouble(Exception):
    """The replica said that something failed, or did not say in time what was waited for."""


@dataclass(frozen=True)
class Steps:
    """Steps committed so far, and the seconds they took in all, as the replica counts them."""

    count: float
    seconds: float


class Driven:
    """A replica with a client that notes how far every export is; `close` ends both."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._port = _free_port()
        self._process = ReplicaProcess(home, "--cores", "2", "--metrics-port", str(self._port), *arguments)
        self.home = home
        self._channel = grpc.insecure_channel(self._process.address, options=[*GRPC_OPTIONS, *EAGER])
        grpc.channel_ready_future(self._channel).result(BOUND)
        self._frames: queue.Queue[pb.Frame | None] = queue.Queue()
        self._stream = ComputeStub(self._channel).CommandResponseStream(  # type: ignore[no-untyped-call]
            iter(self._frames.get, None)
        )
        self._changed, self._uppers, self._failure = threading.Condition(), dict[GlobalId, int](), ""
        threading.Thread(target=self._read, daemon=True).start()
        config = InstanceConfig("bench", str(home))
        self.send(Hello(uuid.uuid4().hex, Epoch(1, 1)), CreateInstance(config), InitializationComplete())

    def send(self, *commands: Command) -> None:
        """In this order, behind what was sent."""
        for frame in pack_commands(commands):
            self._frames.put(frame)

    def install(self, dataflows: Sequence[DataflowDescription]) -> list[GlobalId]:
        """They may run; their exports."""
        exports = [id for dataflow in dataflows for id in dataflow.export_ids]
        self.send(*map(CreateDataflow, dataflows), *map(Schedule, exports))
        return exports

    def compact(self, exports: Sequence[GlobalId], since: int) -> None:
        """Nobody reads them before."""
        self.send(*(AllowCompaction(id, Frontier.at(Time(since))) for id in exports))

    def uppers(self, exports: Sequence[GlobalId]) -> list[int]:
        """How far each was reported."""
        with self._changed:
            return [self._uppers.get(id, 0) for id in exports]

    def wait(self, exports: Sequence[GlobalId], upper: int, bound: float = BOUND) -> float:
        """The clock when all of them were as far; raises ReplicaTrouble."""

        def arrived() -> bool:
            return bool(self._failure) or all(self._uppers.get(id, 0) >= upper for id in exports)

        with self._changed:
            told = self._changed.wait_for(arrived, bound)
            if self._failure or not told:
                behind = [(id, self._uppers.get(id)) for id in exports if self._uppers.get(id, 0) < upper][:3]
                raise ReplicaTrouble(self._failure or f"not at {upper} in {bound:.0f} s: {behind}; see {self.home}")
            return time.perf_counter()

    def steps(self) -> Steps:
        """From the replica's metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=BOUND) as answer:
            lines = [line.split(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
        found = {name: float(value) for name, value in (line for line in lines if len(line) == 2)}
        return Steps(found["tidemark_replica_step_seconds_count"], found["tidemark_replica_step_seconds_sum"])

    def processes(self) -> list[Process]:
        """The replica, its JVM, and all workers."""
        return of_system(self.home)

    def close(self) -> None:
        self._frames.put(None)
        self._stream.cancel()
        self._channel.close()
        self._process.close()

    def _read(self) -> None:
        unpacker = Unpacker.of_responses()
        try:
            for frame in self._stream:
                for response in unpacker.feed(frame):
                    self._note(response)
        except grpc.RpcError as error:
            with self._changed:
                self._failure = self._failure or f"the stream ended: {error}"
                self._changed.notify_all()

    def _note(self, response: Response) -> None:
        with self._changed:
            if isinstance(response, Frontiers) and response.write is not None:
                self._uppers[response.id] = response.write.encode()
            elif isinstance(response, Status) and response.kind.endswith("failed"):
                self._failure = f"{response.id}: {response.kind}: {response.fields}"
            self._changed.notify_all()


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
