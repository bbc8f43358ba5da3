"""Simulated replicas, in their own process, which only report frontiers.

    python -m bench.harness.simulated --listen ADDRESS [--outlived]

    every second, each at a moment of its own:   Frontiers of all exports that it has, ShardFrontiers of their inputs
    SIGUSR1: nothing moves any more              SIGUSR2: it does again

Any number of replicas is behind one address, a stream each. A new one is empty, runs the ingestions that it gets, and
hydrates a dataflow when it is scheduled. `--outlived`: every stream is a replica that outlived its operator; all shards
exist, and every dataflow that it gets is hydrated.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import lru_cache
from typing import Any

import grpc

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.responses import DescribedCollection, DescribedDataflow, DescribedShard, Description
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.pb import compute_pb2_grpc
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardSink
from tidemark_protocol.plan.ingestion import FilesSource, IngestionDescription, SourceTable
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES
from tidemark_protocol.wire.describe import description_to_proto
from tidemark_protocol.wire.frames import FRAME_VERSION, GRPC_OPTIONS

SECONDS = 1.0
MESSAGES = 5_000


class Simulated(compute_pb2_grpc.ComputeServicer):
    """Any number of replicas behind one address."""

    def __init__(self, outlived: bool) -> None:
        self._outlived, self._streams = outlived, 0
        self._replicas: dict[Replica, None] = {}
        self.moving = True

    async def Describe(self, request: Any, context: Any) -> Any:
        """The answer of a replica that outlived its operator: nothing is installed. Shards are as far as the clock."""
        upper, zero = Frontier.at(now_ms()), Frontier.minimum()
        replicas = [] if self._outlived else list(self._replicas)
        there = {id for replica in replicas for id in replica.shards}
        shards = [
            DescribedShard(ShardId(s.id), True, upper, zero, WriterTerm(0))
            if self._outlived or s.id in there
            else DescribedShard(ShardId(s.id), False, zero, zero, WriterTerm(0))
            for s in request.shards
        ]
        dataflows = tuple(d for replica in replicas for d in replica.dataflows)
        collections = tuple(
            DescribedCollection(id, Frontier.at(d.as_of), upper) for d in dataflows for id in d.export_ids
        )
        hydrations = sum(len(replica.has) for replica in replicas)
        return description_to_proto(
            Description("simulated", None, hydrations, dataflows, collections, tuple(shards), SUPPORTED_FEATURES)
        )

    async def InspectSource(self, request: Any, context: Any) -> Any:
        """The tables of files whose columns are given."""
        files = codec.decode(request.source, FilesSource).tables
        tables = [SourceTable(table.name, table.columns) for table in files if table.columns is not None]
        return pb.InspectSourceResponse(tables=[codec.encode(table) for table in tables])

    async def CommandResponseStream(self, frames: Any, context: Any) -> AsyncIterator[Any]:
        self._streams += 1
        replica, woken = Replica(self._outlived), asyncio.Event()
        self._replicas[replica] = None
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
                    responses += replica.report() if self.moving else ()
                for start in range(0, len(responses), MESSAGES):
                    yield pb.Frame(version=FRAME_VERSION, responses=responses[start : start + MESSAGES])
        finally:
            del self._replicas[replica]
            listening.cancel()


class Replica:
    """The state of one replica. `has`: hydrated exports; `shards`: existing ones."""

    def __init__(self, outlived: bool) -> None:
        self._outlived = outlived
        self.dataflows: list[DescribedDataflow] = []
        self.has: dict[str, None] = {}
        self.shards: set[str] = set()
        self._inputs: dict[str, None] = {}
        self._fresh: list[str] = []
        self._ingestions: list[str] = []

    def take(self, command: Any) -> None:
        match command.WhichOneof("kind"):
            case "create_dataflow":
                self._create(_description(command.create_dataflow.description))
            case "initialization_complete" if self._outlived:
                self._fresh += self.has
            case "schedule" if not self._outlived and command.schedule.id not in self.has:
                self.has[command.schedule.id] = None
                self._fresh.append(command.schedule.id)
            case "run_ingestion":
                self._ingest(codec.decode(command.run_ingestion.ingestion, IngestionDescription))

    def fresh(self) -> Iterator[Any]:
        """The immediate responses: exports that have just hydrated, and ingested shards."""
        ids, self._fresh = self._fresh, []
        ingestions, self._ingestions = self._ingestions, []
        for ingestion in ingestions:
            yield pb.Response(ingestion_status=pb.IngestionStatus(id=ingestion, state="running"))
        yield from _shards(self._inputs if ingestions else ())
        yield from _frontiers(ids)

    def report(self) -> Iterator[Any]:
        """Everything."""
        yield from _shards(self._inputs)
        yield from _frontiers(self.has)

    def _create(self, description: DataflowDescription) -> None:
        ids = description.export_ids
        self.dataflows.append(DescribedDataflow(ids, description.plan_digest, description.as_of))
        self._inputs.update(dict.fromkeys(i.shard.shard_id for i in description.source_imports))
        self.shards.update(e.sink.shard.shard_id for e in description.sink_exports if isinstance(e.sink, ShardSink))
        if self._outlived:
            self.has.update(dict.fromkeys(ids))

    def _ingest(self, ingestion: IngestionDescription) -> None:
        tables = [table.shard.shard_id for table in ingestion.tables]
        self._inputs.update(dict.fromkeys(tables))
        self.shards.update([ingestion.remap_id, *tables])
        self._ingestions.append(ingestion.id)


async def _listen(frames: Any, replica: Replica, woken: asyncio.Event) -> None:
    async for frame in frames:
        for command in frame.commands:
            replica.take(command)
        woken.set()


@lru_cache(maxsize=100_000)
def _description(data: bytes) -> DataflowDescription:
    """All replicas get the same commands."""
    return codec.decode(data, DataflowDescription)


def _shards(ids: Iterable[str]) -> Iterator[Any]:
    now = now_ms()
    for id in ids:
        yield pb.Response(shard_frontiers=pb.ShardFrontiers(id=id, upper=now + 1, since=0))


def _frontiers(ids: Iterable[str]) -> Iterator[Any]:
    at = now_ms()
    for id in ids:
        yield pb.Response(frontiers=pb.Frontiers(id=id, write=at, input=at, output=at))


def now_ms() -> int:
    return int(time.time() * 1000)


async def serve(address: str, outlived: bool) -> None:
    simulated = Simulated(outlived)
    for number, moving in ((signal.SIGUSR1, False), (signal.SIGUSR2, True)):
        asyncio.get_running_loop().add_signal_handler(number, setattr, simulated, "moving", moving)
    server = grpc.aio.server(options=GRPC_OPTIONS)
    compute_pb2_grpc.add_ComputeServicer_to_server(simulated, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """Also in the place of a replica's program, whose other options say nothing to it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True, help="the address")
    parser.add_argument("--outlived", action="store_true", help="an operator that is gone told them what they have")
    given, _ = parser.parse_known_args()
    asyncio.run(serve(given.listen, given.outlived))


if __name__ == "__main__":
    main()
