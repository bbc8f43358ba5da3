"""Commands to a replica over its socket, and a thread that collects its responses."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

import grpc

from tidemark_protocol.messages.commands import Command
from tidemark_protocol.messages.responses import Response
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.pb.compute_pb2_grpc import ComputeStub
from tidemark_protocol.wire.frames import GRPC_OPTIONS, Unpacker, pack_commands

# a process that is still starting is tried again soon, whatever earlier channels to the same address met
_EAGER = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class ReplicaStream(ABC):
    """Subclasses decide what to keep of the responses; waiters wait on `_changed`."""

    def __init__(self, address: str, bound: float) -> None:
        """Connects, within `bound` seconds; responses may come from then on."""
        self.channel = grpc.insecure_channel(address, options=[*GRPC_OPTIONS, *_EAGER])
        grpc.channel_ready_future(self.channel).result(bound)
        self.stub = ComputeStub(self.channel)  # type: ignore[no-untyped-call]
        self.error: grpc.RpcError | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._frames: queue.Queue[pb.Frame | None] = queue.Queue()
        self._stream = self.stub.CommandResponseStream(iter(self._frames.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, *commands: Command) -> None:
        """In this order, behind what was sent."""
        for frame in pack_commands(commands):
            self._frames.put(frame)

    def send_frame(self, frame: pb.Frame) -> None:
        self._frames.put(frame)

    def cancel(self) -> None:
        """Breaks the stream off; other calls still work."""
        self._stream.cancel()

    def close(self) -> None:
        self._frames.put(None)
        self._stream.cancel()
        self.channel.close()

    @abstractmethod
    def keep(self, responses: Sequence[Response]) -> None:
        """Keep a frame. The thread that reads calls it for each; `_changed` is held."""

    def _read(self) -> None:
        unpacker = Unpacker.of_responses()
        try:
            for frame in self._stream:
                came = list(unpacker.feed(frame))
                with self._changed:
                    self.keep(came)
                    self._changed.notify_all()
        except grpc.RpcError as error:
            self.error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()
