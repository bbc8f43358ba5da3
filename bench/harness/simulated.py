"""Replicas that only say how far they are: a process of its own, `python -m bench.harness.simulated ADDRESS`.

    every second, each at a moment of its own:   Frontiers of all exports that it has, ShardFrontiers of their inputs

Every stream is a replica that outlived its operator: what it is told to have it has, hydrated.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any

import grpc

from tidemark_protocol import codec
from tidemark_protocol.dataflow import DataflowDescription
from tidemark_protocol.describe import description_to_proto
from tidemark_protocol.frames import FRAME_VERSION, GRPC_OPTIONS
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.pb import compute_pb2_grpc
from tidemark_protocol.responses import DescribedShard, Description

SECONDS = 1.0
MESSAGES = 5_000


class Simulated(compute_pb2_grpc.ComputeServicer):
    """Any number of replicas behind one address."""

    def __init__(self) -> None:
        self._streams = 0

    async def Describe(self, request: Any, context: Any) -> Any:
        """Nothing is installed; every shard is as far as the clock."""
        upper, zero = Frontier.at(now_ms()), Frontier.minimum()
        shards = [DescribedShard(ShardId(s.id), True, upper, zero, WriterTerm(0)) for s in request.shards]
        return description_to_proto(Description("simulated", None, 0, (), (), tuple(shards)))

    async def CommandResponseStream(self, frames: Any, context: Any) -> AsyncIterator[Any]:
        self._streams += 1
        replica, woken = Replica(), asyncio.Event()
        listening = asyncio.create_task(_listen(frames, replica, woken))
        due = time.monotonic() + (self._streams * 0.381966) % 1 * SECONDS
        try:
            while not listening.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(due - time.monotonic(), 0)):
                        await woken.wait()
                woken.clear()
                responses = list(replica.fresh())
                if time.monotonic() >= due:
                    due = max(due + SECONDS, time.monotonic())  # turns that were missed: only the newest counts
                    responses = list(replica.report())
                for start in range(0, len(responses), MESSAGES):
                    yield pb.Frame(version=FRAME_VERSION, responses=responses[start : start + MESSAGES])
        finally:
            listening.cancel()


class Replica:
    """What it was told to have."""

    def __init__(self) -> None:
        self._has: dict[str, None] = {}
        self._fresh: list[str] = []
        self._shards: dict[str, None] = {}

    def take(self, command: Any) -> None:
        kind = command.WhichOneof("kind")
        if kind == "create_dataflow":
            description = _description(command.create_dataflow.description)
            self._has.update(dict.fromkeys(description.export_ids))
            self._shards.update(dict.fromkeys(i.shard.shard_id for i in description.source_imports))
        elif kind == "initialization_complete":
            self._fresh += self._has

    def fresh(self) -> Iterator[Any]:
        """What a new client is told first."""
        ids, self._fresh = self._fresh, []
        return _frontiers(ids)

    def report(self) -> Iterator[Any]:
        """Everything."""
        now = now_ms()
        for id in self._shards:
            yield pb.Response(shard_frontiers=pb.ShardFrontiers(id=id, upper=now + 1, since=0))
        yield from _frontiers(self._has)


async def _listen(frames: Any, replica: Replica, woken: asyncio.Event) -> None:
    async for frame in frames:
        for command in frame.commands:
            replica.take(command)
        woken.set()


@lru_cache(maxsize=100_000)
def _description(data: bytes) -> DataflowDescription:
    """Every replica is told the same."""
    return codec.decode(data, DataflowDescription)


def _frontiers(ids: Any) -> Iterator[Any]:
    at = now_ms()
    for id in ids:
        yield pb.Response(frontiers=pb.Frontiers(id=id, write=at, input=at, output=at))


def now_ms() -> int:
    return int(time.time() * 1000)


async def serve(address: str) -> None:
    server = grpc.aio.server(options=GRPC_OPTIONS)
    compute_pb2_grpc.add_ComputeServicer_to_server(Simulated(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
