"""Conversations of garbled frames with both edges, and the counts of their outcomes.

Campaign(seed).run(frames)      raises what a frame breaks, with the seed of its conversation
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import DecodeError

from tests.controller.harness import INDEX, VIEW
from tests.fuzz.edges import ConfigChanged, ControllerEdge, ReplicaEdge, StashEdge
from tests.fuzz.garbler import Garbler
from tests.protocol.samples import INGESTION, dataflow
from tests.protocol.test_wire import COMMANDS, RESPONSES
from tests.replica.plans import COLUMNS, copies, shard, transient
from tidemark_protocol.errors import ProtocolError
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, ShardId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import (
    DescribedCollection,
    DescribedDataflow,
    DescribedShard,
    Description,
    Frontiers,
)
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.dataflow import CopyToSink, DataflowDescription, SubscribeSink
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.types import BIGINT, Column
from tidemark_protocol.wire import protobuf
from tidemark_protocol.wire.describe import description_from_proto, description_to_proto
from tidemark_protocol.wire.frames import pack_commands
from tidemark_replica.server.server import decode_source

LONGEST = 12
GENERATION = 200
"""The number of conversations with one replica: state of one conversation may break the next."""
CONFIG = c.InstanceConfig("default", "file:///data")
OLDER = (c.CreateTimely(Epoch(3, 4)), c.AllowAllWrites())


def _about(dataflow: DataflowDescription) -> list[c.Command]:
    """The commands of a dataflow's life. The plan comes most often, since most can be wrong in it."""
    commands: list[c.Command] = [c.CreateDataflow(dataflow)] * 4
    for id in dataflow.export_ids:
        target, at = c.IndexTarget(id), Frontier.at
        commands += [c.Schedule(id), c.AllowWrites(id, WriterTerm(2)), c.AllowCompaction(id, at(9))]
        commands += [c.AllowCompaction(id, Frontier.empty()), c.CancelPeek("p")]
        commands.append(c.Peek("p", target, Time(7), MapFilterProject(()), Finishing(limit=3), (Column("a", BIGINT),)))
    return commands


DATAFLOWS = (
    dataflow("revenue"),
    copies("both", 10, source=shard("t"), index="i", view=shard("v")),
    copies(
        "hourly",
        10,
        source=shard("t"),
        view=shard("v"),
        refresh=RefreshSchedule(3_600_000, Time(1), (Time(2),)),
        until=9,
    ),
    copies("reader", 10, imports_index="i", index="j"),
    transient("s", SubscribeSink(COLUMNS)),
    transient("c", CopyToSink(COLUMNS, "/out", "csv")),
)
_SAID = [*COMMANDS, *OLDER, *(command for d in DATAFLOWS for command in _about(d))]
_COMMANDS = [protobuf.command_to_proto(m) for m in _SAID]
_FRONTIERS = [
    Frontiers(id, *kinds) for id in (INDEX, VIEW) for kinds in ((Frontier.at(400),) * 3, (None, None, Frontier.at(500)))
]
_GONE = DescribedShard(
    ShardId("s1"), True, Frontier.at(9), Frontier.at(0), WriterTerm(1), "gone", ShardId("s0"), COLUMNS
)
_DESCRIPTION = description_to_proto(
    Description(
        "incarnation",
        Epoch(3, 4),
        7,
        (DescribedDataflow((INDEX, VIEW), "digest", Time(9), Frontier.at(8)),),
        (DescribedCollection(INDEX, Frontier.at(9), Frontier.empty()),),
        (_GONE,),
        (*SUPPORTED_FEATURES, "another"),
    )
)
_SOURCE = pb.InspectSourceRequest(source=codec.encode(INGESTION.source))
_PIECE = pb.FetchStashRequest(uuid=StashEdge.UUID, offset=3)
_RESPONSES = [protobuf.response_to_proto(m) for m in (*RESPONSES, *_FRONTIERS * 4)]


class Broken(AssertionError):
    """A frame broke an invariant."""


def _described(data: bytes) -> None:
    description_from_proto(pb.DescribeResponse.FromString(data))


def _inspected(data: bytes) -> None:
    decode_source(pb.InspectSourceRequest.FromString(data).source)


@dataclass
class Campaign:
    """A campaign from one seed. `outcomes` counts statuses, and `taken` for accepted frames."""

    seed: int
    frames: int = 0
    conversations: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, frames: int, tell: Callable[[Campaign], None] = lambda campaign: None) -> None:
        started = time.monotonic()
        with closing(StashEdge()) as self._stash:
            while self.frames < frames:
                if self.conversations % GENERATION == 0:
                    self._replica, self._controller = ReplicaEdge(), ControllerEdge()
                self.conversations += 1
                self._converse(f"{self.seed}/{self.conversations}")
                if time.monotonic() - started > 30:
                    started = time.monotonic()
                    tell(self)

    def _converse(self, name: str) -> None:
        chance = random.Random(name)
        try:
            kinds = (self._with_replica, self._with_controller, self._beside_the_stream)
            chance.choices(kinds, (70, 22, 8))[0](chance)
        except Exception as error:
            raise Broken(f"conversation {name}: {type(error).__name__}: {error}") from error

    def _with_replica(self, chance: random.Random) -> None:
        garbler = Garbler(chance, _COMMANDS, "commands")
        self._replica.connect()
        greeting = self._greeting(chance)
        try:
            for _ in range(chance.randrange(1, LONGEST)):
                data = greeting.pop(0) if greeting else garbler.frame()
                if self._count(self._replica.take(data)):
                    return
        except ConfigChanged:
            self.outcomes["the process ends, to begin anew"] += 1
            self._replica = ReplicaEdge()

    def _greeting(self, chance: random.Random) -> list[bytes]:
        """Most conversations start with a valid greeting of either generation, so that later frames reach more code."""
        epoch = Epoch(self.seed + 1, self.conversations)
        first: c.Command = c.Hello(f"nonce {self.conversations}", epoch)
        if chance.random() < 0.3:
            first = c.CreateTimely(epoch)
        commands: list[c.Command] = [first, c.CreateInstance(CONFIG), c.InitializationComplete()]
        wanted = commands[: chance.choice((0, 1, 2, 3, 3, 3))]
        return [frame.SerializeToString() for frame in pack_commands(wanted)]

    def _with_controller(self, chance: random.Random) -> None:
        garbler = Garbler(chance, _RESPONSES, "responses")
        self._controller.connect()
        for _ in range(chance.randrange(1, LONGEST)):
            if self._count(self._controller.take(garbler.frame())):
                return

    def _beside_the_stream(self, chance: random.Random) -> None:
        """Garbled descriptions, source inspections and stash requests."""
        for sample, take in ((_DESCRIPTION, _described), (_SOURCE, _inspected), (_PIECE, self._stash.take)):
            garbler = Garbler(chance, [sample], "")
            try:
                self._count(take(garbler.single()))
            except (ProtocolError, DecodeError):
                self._count(grpc.StatusCode.INVALID_ARGUMENT)

    def _count(self, refused: object) -> bool:
        self.frames += 1
        self.outcomes["taken" if refused is None else getattr(refused, "name", str(refused))] += 1
        return refused is not None
