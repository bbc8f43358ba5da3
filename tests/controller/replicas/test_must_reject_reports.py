"""Reports that end a replica's connection: a stream with a gap, an impossible term."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.controller.harness import LAG, at
from tests.controller.scripted import R1, Listening, ScriptedReplica, complete, play
from tests.replica.plans import COLUMNS, transient
from tests.waiting import BOUND
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.ids import Epoch
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import (
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import SubscribeSink

__all__ = ["play"]


def test_must_end_the_connection_of_a_replica_that_says_what_cannot_be(play: Callable[..., None]) -> None:
    """A subscribe's batch with a gap before it: the client is told nothing of it, the replica begins anew, and all
    after it on that connection is discarded."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        description = transient("s", SubscribeSink(COLUMNS))
        for source in description.source_imports:
            instance.core.shards.register(source.shard.shard_id, source.shard.location, LAG)
        async with instance.clients.subscribe(Dataflow("s", description, LAG)) as subscription:
            (id,) = description.export_ids
            await replica.until(lambda: c.CreateDataflow(description) in replica.streams[0])
            lie, after = SubscribeBatch(at(3), at(4)), SubscribeBatch(at(0), at(5))
            replica.say(SubscribeResponse(id, lie), SubscribeResponse(id, after))
            await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
            assert c.CreateDataflow(description) in replica.streams[1]
            replica.say(SubscribeResponse(id, SubscribeBatch(at(0), at(7))))
            async with asyncio.timeout(BOUND):
                assert (await subscription.next()).batch.upper == at(7)

    play(scenario)


def test_must_not_speak_to_a_replica_that_says_it_serves_a_term_that_cannot_be(play: Callable[..., None]) -> None:
    """It is left alone, and its condition says why; what is connected goes on."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: "no operator came to term" in instance.replicas[R1].last_error)
        assert (replica.streams, instance.online, instance.replicas[R1].task.done()) == ([], [], False)

    play(scenario, epoch=Epoch(2**31 - 2, 1))
