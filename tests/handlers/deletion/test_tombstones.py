"""Tables that are deleted after their object has gone: at once, and never one that another object has."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.deletion.tombstones import Buried
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev, table
from tests.resources.manifests import body
from tests.waiting import BOUND
from tidemark_operator.controller.controller_events import ShardRemoved
from tidemark_operator.errors import QueryRefused, Waiting
from tidemark_operator.handlers.deletion import table_deletion
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, INSTANCES, ApiError
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.commands import DeleteShard
from tidemark_protocol.messages.responses import ShardDeleted

D = Key(DATAFLOWS, "ns", "d")
VIEW = TableAddress(ShardId("uid/v/v1"), "/data/ns/d/v/v1")


@pytest.mark.parametrize(
    ("uid", "asked", "left"),
    [
        pytest.param("old", ["old//data/ns/d/v/v1"], True, id="its own object is about to go"),
        pytest.param("new", [], False, id="another one has it: it is to be deleted no more"),
    ],
)
def test_a_table_that_another_object_has_is_not_deleted(uid: str, asked: list[str], left: bool) -> None:
    """Its id is that of before, so no replica would refuse."""

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried(table("d", 1).location), list[str]()
        harness.put(READABLE, ONE)
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True

        def send(_: ReplicaId, command: DeleteShard) -> bool:
            sent.append(command.id)
            return True

        cast(Any, running.core).send_to = send
        state = dataflow("d", rev("d", 1, view=1))
        state.uid = uid
        harness.context.registry.put_dataflow(state)

        await TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache).collect("ns")

        assert sent == asked
        assert bool(buried.bodies) == left
        await harness.fleet.close()

    asyncio.run(scenario())


def test_a_table_in_another_storage_is_not_taken_for_gone() -> None:
    """A replica without that mount, or its credentials, sees nothing there: the tombstone waits for one that does."""

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried("/elsewhere/ns/d/v/v1"), list[str]()
        harness.put(READABLE, ONE)
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True
        cast(Any, running.core).send_to = lambda _, command: sent.append(command.id)

        await TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache).collect("ns")

        assert (sent, bool(buried.bodies)) == ([], True)
        await harness.fleet.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("there", [True, False], ids=["it is there", "it is gone"])
@pytest.mark.parametrize("named", ["default", "other", None])
def test_the_instance_that_published_a_table_deletes_it(named: str | None, there: bool) -> None:
    """Another one may have another volume under that path, and would find nothing. Older tombstones name none."""

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried("/data/spent"), list[str]()
        harness.put(READABLE, ONE)
        if named is not None:
            buried.bodies[0]["data"]["shards"][0]["instance"] = named
        running = harness.context.running("ns", "default")
        assert running is not None
        if there:
            harness.cache.put(Key(INSTANCES, "ns", "other"), body("ComputeInstance", READABLE, "other"))
        running.replicas[ReplicaId("r1")].online = True
        cast(Any, running.core).send_to = lambda _, command: sent.append(command.id)

        has_more = await TableDeleter(
            cast(Any, buried), harness.fleet, harness.context.registry, harness.cache
        ).collect("ns")

        is_asked = named != "other" or not there
        assert (sent, has_more) == (["old//data/spent"] if is_asked else [], is_asked)
        await harness.fleet.close()

    asyncio.run(scenario())


def test_must_a_table_of_a_tombstone_is_deleted_without_a_resync() -> None:
    """The tombstone is stored while no replica is online: the first one that connects is asked, and the tombstone goes
    with its answer. Nothing here resyncs."""

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried(), asyncio.Queue[DeleteShard]()
        buried.bodies = []
        harness.put(READABLE, ONE)
        harness.context.kube = cast(Any, buried)
        operator = ReconcileLoop(harness.context, asyncio.Event())
        running = harness.context.running("ns", "default")
        assert running is not None
        r1 = ReplicaId("r1")
        cast(Any, running.core).send_to = lambda _, command: sent.put_nowait(command)
        collecting = asyncio.create_task(operator.deleter.collecting.run())

        await operator.deleter.bury(D, VIEW, lambda: None)
        await buried.listed.wait()
        running.replicas[r1].online = True
        operator.replica_changed(running, r1)
        command = await sent.get()
        assert (command.id, command.location) == ("uid/v/v1", "/data/ns/d/v/v1")

        operator.notice(running, ShardRemoved(r1, ShardDeleted(command.id)))
        await buried.emptied.wait()
        assert len(buried.deleted) == 1
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_replica_that_dies_with_the_request_is_followed_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here resyncs, and nobody connects meanwhile."""
    monkeypatch.setattr(table_deletion, "REPEAT_MS", 10)

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried("/data/ns/d/v/v1"), asyncio.Queue[ReplicaId]()
        harness.put(READABLE, ONE)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        running = harness.context.running("ns", "default")
        assert running is not None
        running.attach(ReplicaId("r2"), "unix:///nowhere/at/all")
        for replica in running.replicas.values():
            replica.online = True
        cast(Any, running.core).send_to = lambda replica, _: sent.put_nowait(replica)
        collecting = asyncio.create_task(tables.collecting.run())
        tables.collect_soon("ns")

        first = await sent.get()
        while await sent.get() == first:
            pass
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_replica_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It owes no answer any more, and nothing here resyncs."""
    monkeypatch.setattr(table_deletion, "REPEAT_MS", 10)

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried("/data/ns/d/v/v1"), asyncio.Queue[DeleteShard]()
        harness.put(READABLE, ONE)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        running = harness.context.running("ns", "default")
        assert running is not None
        r1 = ReplicaId("r1")
        running.replicas[r1].online = True

        def fail(replica: ReplicaId, command: DeleteShard) -> None:
            sent.put_nowait(command)
            tables.requests.record_answer(running.name, replica, ShardDeleted(command.id, "the store is away"), 0)

        cast(Any, running.core).send_to = fail
        collecting = asyncio.create_task(tables.collecting.run())
        tables.collect_soon("ns")
        for _ in range(3):
            await sent.get()
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


class SlowToRemove(Buried):
    """The first tombstone is removed once a test says so."""

    def __init__(self, *locations: str) -> None:
        super().__init__(*locations)
        self.removing, self.go_on = asyncio.Event(), asyncio.Event()

    async def delete(self, *arguments: Any) -> None:
        self.removing.set()
        await self.go_on.wait()
        await super().delete(*arguments)


def test_tombstones_of_a_namespace_are_collected_by_one_at_a_time() -> None:
    """A second one would find no request of a table whose tombstone is being removed, and have it deleted again."""

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), SlowToRemove("/data/ns/d/v/v1"), list[DeleteShard]()
        harness.put(READABLE, ONE)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        running = harness.context.running("ns", "default")
        assert running is not None
        r1 = ReplicaId("r1")
        running.replicas[r1].online = True
        cast(Any, running.core).send_to = lambda _, command: sent.append(command)
        assert await tables.collect("ns")
        (command,) = sent
        tables.requests.record_answer(running.name, r1, ShardDeleted(command.id), 0)

        first = asyncio.create_task(tables.collect("ns"))
        await buried.removing.wait()
        second = asyncio.create_task(tables.collect("ns"))
        for _ in range(5):
            await asyncio.sleep(0)
        buried.go_on.set()
        assert [await first, await second] == [False, False]
        assert sent == [command]
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_table_whose_name_is_taken_while_its_tombstone_is_stored_is_not_deleted() -> None:
    """The new object may have adopted the table before the tombstone was there."""

    async def scenario() -> None:
        harness, buried, sent = OperatorHarness(), Buried(), list[DeleteShard]()
        buried.bodies = []
        harness.put(READABLE, ONE)
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True
        cast(Any, running.core).send_to = lambda _, command: sent.append(command)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)

        def check() -> None:
            if buried.bodies:  # d was created meanwhile
                raise QueryRefused("Dataflow d exists")

        with pytest.raises(QueryRefused):
            await tables.bury(D, VIEW, check)
        await tables.collect("ns")

        assert (buried.bodies, sent) == ([], [])
        assert await tables.locations("ns") == frozenset()
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_table_that_is_to_be_deleted_already_stays_so() -> None:
    async def scenario() -> None:
        harness, buried = OperatorHarness(), Buried(VIEW.location)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)

        await tables.bury(D, VIEW, lambda: None)

        assert [body["metadata"]["name"] for body in buried.bodies] == ["tombstone-old"]
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


def test_a_tombstone_that_cannot_be_removed_does_not_stop_those_behind_it() -> None:
    async def scenario() -> None:
        harness, sent = OperatorHarness(), list[DeleteShard]()
        buried = KeepsTheFirst(VIEW.location, "/data/ns/e/v/v1")
        harness.put(READABLE, ONE)
        running = harness.context.running("ns", "default")
        assert running is not None
        r1 = ReplicaId("r1")
        running.replicas[r1].online = True
        cast(Any, running.core).send_to = lambda _, command: sent.append(command)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        await tables.collect("ns")
        for command in sent:
            tables.requests.record_answer(running.name, r1, ShardDeleted(command.id), 0)

        with pytest.raises(ApiError):
            await tables.collect("ns")

        assert [body["metadata"]["name"] for body in buried.bodies] == ["tombstone-0"]
        await harness.fleet.close()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))


class KeepsTheFirst(Buried):
    """A tombstone for each location. The API server refuses to remove the first one."""

    def __init__(self, *locations: str) -> None:
        super().__init__()
        self.bodies = [
            {
                "metadata": {"name": f"tombstone-{n}", "uid": "u"},
                "data": {"shards": [{"id": f"old/{at}", "location": at}]},
            }
            for n, at in enumerate(locations)
        ]

    async def delete(self, _: object, namespace: str, name: str, uid: str) -> None:
        if name == "tombstone-0":
            raise ApiError(500, "not now")
        self.bodies = [each for each in self.bodies if each["metadata"]["name"] != name]


@pytest.mark.parametrize("by", ["another program", "an answer that is lost"])
def test_a_tombstone_that_is_gone_is_waited_for_no_more(by: str) -> None:
    """A person deletes it, or its namespace; or the API server does, and the operator does not learn of it."""

    class Lost(Buried):
        async def delete(self, *arguments: Any) -> None:
            await super().delete(*arguments)
            raise ApiError(504, "lost")

    async def scenario() -> None:
        harness, buried = OperatorHarness(), Lost("/lake/spent")
        buried.spaces = ["other"]
        harness.put(READABLE, ONE)
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        with pytest.raises(Waiting):
            await tables.finish("ns", "/lake/spent", everywhere=True)
        if by == "another program":
            buried.bodies = []
        else:
            (tombstone,) = await tables._tombstones.list("other")
            with pytest.raises(ApiError):
                await tables._tombstones.remove("other", tombstone)
        await tables.finish("ns", "/lake/spent", everywhere=True)
        await harness.fleet.close()

    asyncio.run(scenario())
