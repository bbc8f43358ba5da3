"""What is not believed of a replica, over a real connection: what cannot be, in its reports and of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.controller.scripted import R1, Listening, ScriptedReplica, complete, play
from tests.controller.worlds import INDEX, INPUT, LAG, R2, TERM, VIEW, at
from tests.protocol.samples import dataflow
from tests.replica.plans import COLUMNS, transient
from tests.waiting import BOUND
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.read_policy import BELIEVED_AHEAD_MS
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import (
    DescribedCollection,
    DescribedShard,
    Description,
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import SubscribeSink

__all__ = ["play"]


def test_must_end_the_connection_of_a_replica_that_says_what_cannot_be(play: Callable[..., None]) -> None:
    """A subscribe's batch of nobody knows when: the client is told nothing of it, the replica begins anew, and all
    after it on that connection is discarded."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        description = transient("s", SubscribeSink(COLUMNS))
        for source in description.source_imports:
            instance.core.shards.register(source.shard.shard_id, source.shard.location, LAG)
        async with instance.clients.subscribe(Dataflow("s", description, LAG)) as subscription:
            (id,) = description.export_ids
            await replica.until(lambda: c.CreateDataflow(description) in replica.streams[0])
            lie, after = SubscribeBatch(at(0), Frontier.empty()), SubscribeBatch(at(0), at(5))
            replica.say(SubscribeResponse(id, lie), SubscribeResponse(id, after))
            await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
            assert c.CreateDataflow(description) in replica.streams[1]
            replica.say(SubscribeResponse(id, SubscribeBatch(at(0), at(7))))
            async with asyncio.timeout(BOUND):
                assert (await subscription.next()).batch.upper == at(7)

    play(scenario)


def test_must_not_believe_a_description_of_what_cannot_be(play: Callable[..., None]) -> None:
    """An end that nothing has brought, and a beginning that never comes, from which a new dataflow would go on:
    it begins where the clock vouches for it."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        replica.collections = (
            DescribedCollection(INDEX, at(300), Frontier.empty()),
            DescribedCollection(VIEW, at(1 << 62), at(400)),
        )
        replica.hang_up()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))

        collection, described = instance.core.dataflows.collection(INDEX), instance.replicas[R1].description
        assert collection is not None
        assert collection.write is None
        assert described is not None
        index, view = described.collections
        assert (index.id, index.since, view.id) == (INDEX, at(300), VIEW)
        assert at(0) < view.since <= at(now_ms() + BELIEVED_AHEAD_MS)

    play(scenario)


def test_must_not_speak_to_a_replica_that_says_it_serves_a_term_that_cannot_be(play: Callable[..., None]) -> None:
    """It is left alone, and its condition says why; what is connected goes on."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: "no operator came to term" in instance.replicas[R1].last_error)
        assert (replica.streams, instance.online, instance.replicas[R1].task.done()) == ([], [], False)

    play(scenario, epoch=Epoch(2**31 - 2, 1))


def test_what_replicas_describe_ahead_of_the_clock_is_kept_for_each(play: Callable[..., None]) -> None:
    """One that lies, in its first description and with each probe, takes no place from what another says."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        now = now_ms()

        def says(upper: int) -> Description:
            return Description("incarnation", None, 0, (), (), (DescribedShard(INPUT, True, at(upper), at(0), TERM),))

        instance.attach(R2, "unix:///nowhere")
        instance.described(R2, 99, says(1 << 60))
        for seconds in (60, 90):
            instance.probed(R1, instance._connections, says(now + 1000 * seconds))
            instance.probed(R2, 99, says(1 << 60))
        for seconds in (60, 90):
            instance.core.maintain(now + 1000 * seconds - BELIEVED_AHEAD_MS)
            found = instance.core.shards.frontiers(INPUT)
            assert found is not None
            assert found.upper == at(now + 1000 * seconds)

    play(scenario)
