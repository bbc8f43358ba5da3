"""A real replica process, and a scripted client that speaks to it over its socket."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from tests.replica.command_stream import ReplicaStream
from tests.waiting import BOUND
from tidemark_protocol.ids import Epoch, ShardId
from tidemark_protocol.messages.commands import Command, CreateInstance, Hello, InitializationComplete, InstanceConfig
from tidemark_protocol.messages.responses import Description, Response
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.wire.describe import description_from_proto

STACK, STACKS_SECONDS = "Current thread ", 10.0


class ReplicaProcess:
    """`python -m tidemark_replica` with a socket and a scratch folder under `home`."""

    def __init__(self, home: Path, *arguments: str, environ: dict[str, str] | None = None) -> None:
        self.home, self._environ = home, dict(os.environ) if environ is None else environ
        # a unix socket's path is short by law, and test folders are long
        self._sockets = tempfile.TemporaryDirectory(prefix="tm-")
        self.address = f"unix://{self._sockets.name}/s/replica.sock"
        self.arguments = arguments
        self.start()

    def start(self) -> None:
        self.log = (self.home / "replica.log").open("ab")
        command = [sys.executable, "-m", "tidemark_replica", "--listen", self.address]
        command += ["--scratch", str(self.home / "scratch"), *self.arguments]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=self._environ)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(BOUND)

    def stop(self) -> int:
        """SIGTERM; the exit code. One that does not end is killed, and says where it was."""
        self.process.terminate()
        try:
            return self.process.wait(BOUND)
        except subprocess.TimeoutExpired:
            self.tell_stacks()
            self.kill()
            raise AssertionError(f"the replica did not end:\n{self.log_text()[-20_000:]}") from None

    def tell_stacks(self) -> None:
        """Into its log; one that is stopped, or gone, says nothing."""
        before = self.log_text().count(STACK)
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + STACKS_SECONDS
        while self.log_text().count(STACK) == before and time.monotonic() < deadline:
            time.sleep(0.05)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()
        self.log.close()
        self._sockets.cleanup()

    def log_text(self) -> str:
        return (self.home / "replica.log").read_text()


class ScriptedClient(ReplicaStream):
    """Sends what it is told to, and keeps all that comes back."""

    def __init__(self, address: str) -> None:
        self.responses: list[Response] = []
        super().__init__(address, BOUND)

    def keep(self, responses: Sequence[Response]) -> None:
        self.responses.extend(responses)

    def greet(self, epoch: Epoch, config: InstanceConfig, *commands: Command) -> None:
        """All of creation and initialization, with these commands."""
        hello = Hello(uuid.uuid4().hex, epoch)
        self.send(hello, CreateInstance(config), *commands, InitializationComplete())

    def be_served(self, epoch: Epoch, config: InstanceConfig) -> None:
        """Greets, and waits until the replica serves it: calls and streams overtake each other on their way."""
        self.greet(epoch, config)
        wait_until(lambda: self.describe().epoch == epoch)

    def wait_for(self, holds: Callable[[list[Response]], Any], bound: float = BOUND) -> Any:
        """The value of `holds` for the responses so far, once it is true."""
        with self._changed:
            ready = self._changed.wait_for(lambda: holds(self.responses) or self._ended, bound)
            found = holds(self.responses)
            assert found, f"ended={self._ended} error={self.error} waited={ready} for it; came: {self.responses[-20:]}"
            return found

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended."""
        return self._ended

    def wait_end(self) -> grpc.RpcError | None:
        """The end of the stream: None, or the error."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, BOUND), "the stream goes on"
        return self.error

    def fetch(self, peek: str, offset: int) -> bytes | None:
        """A piece of a stashed answer; None where it is not kept."""
        try:
            return bytes(self.stub.FetchStash(pb.FetchStashRequest(uuid=peek, offset=offset), timeout=BOUND).data)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def describe(self, shards: dict[str, str] | None = None) -> Description:
        refs = [pb.ShardRef(id=ShardId(i), location=at) for i, at in (shards or {}).items()]
        return description_from_proto(self.stub.Describe(pb.DescribeRequest(shards=refs), timeout=BOUND))


def epochs(term: int = 1) -> Iterator[Epoch]:
    """Each newer than the one before."""
    return (Epoch(term, n) for n in itertools.count(1))


def wait_until(holds: Callable[[], Any], bound: float = BOUND, pause: float = 0.05) -> Any:
    """The value of `holds`, once it is true; asked again and again where nothing tells when it changes."""
    deadline = time.monotonic() + bound
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(pause)
    return found


def descendants(pid: int) -> set[int]:
    """The processes below `pid` now, all the way down."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found, below = set[int](), {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below}
        found |= below
    return found


def living(pids: Iterable[int]) -> set[int]:
    """The processes that still run; one that only waits to be reaped does not."""
    return {pid for pid in pids if _state(pid) not in (None, "Z", "X")}


def _state(pid: int) -> str | None:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
