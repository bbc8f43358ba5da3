"""A published table is deleted with its Dataflow, under `deletionPolicy: Delete`, and before another one is made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.handlers.deletion.tombstones import Buried
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.deletion.dataflow_deletion import DataflowDeletion
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.deletion.tombstones import TableAddress, _parse
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_protocol.messages.commands import DeleteShard
from tidemark_protocol.messages.responses import ShardDeleted
from tidemark_protocol.plan.dataflow import MaterializedViewSink
from tidemark_protocol.plan.sinks.publish import PublishedView, published_location

AT = published_location("/data", "ns", "d", "v")


def publishing(mark: ActiveRevision, at: str = "") -> ActiveRevision:
    """The same, with its view published, where `at` is given at this location of the manifest's choice."""
    (export,) = mark.revision.description.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = replace(
        export, sink=replace(export.sink, publish=PublishedView(at or AT, "ns.d.v", 1000, 24, chosen=bool(at)))
    )
    description = replace(mark.revision.description, sink_exports=(sink,))
    return replace(mark, revision=replace(mark.revision, description=description))


def test_it_goes_with_the_tables_of_its_dataflow() -> None:
    """Also where it is the revision that takes over next which publishes."""

    async def scenario() -> None:
        harness, sent = OperatorHarness(), list[DeleteShard]()
        harness.put(READABLE, ONE)
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True
        cast(Any, running.core).send_to = lambda _, command: sent.append(command)
        tables = TableDeleter(cast(Any, Buried()), harness.fleet, harness.context.registry, harness.cache)
        state = dataflow("d", rev("d", 1, view=1), publishing(rev("d", 2, view=1)))
        state.uid = "uid"
        body = {"metadata": {"deletionTimestamp": "2999-01-01T00:00:00Z"}}
        deletion = DataflowDeletion(harness.context, tables)

        assert not await deletion._delete_tables(state, cast(Any, body))
        assert [(command.id, command.location) for command in sent] == [
            ("d/v/v1", "/data/ns/d/v/v1"),
            ("published/uid/ns.d.v", AT),
        ]
        for command in sent:
            tables.requests.record_answer("default", ReplicaId("r1"), ShardDeleted(command.id), now_ms())
        assert await deletion._delete_tables(state, cast(Any, body))
        await harness.fleet.close()

    asyncio.run(scenario())


def test_a_tombstone_names_the_instance_that_published_at_a_chosen_location() -> None:
    async def scenario() -> None:
        harness, buried = OperatorHarness(), Buried()
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        state = dataflow("d", publishing(rev("d", 1, view=1), "/lake/spent"))
        body = {"metadata": {"deletionTimestamp": "2000-01-01T00:00:00Z"}}
        assert await DataflowDeletion(harness.context, tables)._delete_tables(state, cast(Any, body))
        listed = buried.bodies[-1]["data"]["shards"]
        assert [(each["location"], each.get("instance")) for each in listed] == [
            ("/data/ns/d/v/v1", None),
            ("/lake/spent", "default"),
        ]
        await harness.fleet.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("place", "waits"), [(AT, True), ("/data/ns/_published/d", True), (f"{AT}/x", True), (f"{AT}s", False)]
)
def test_what_is_published_in_its_place_waits_for_the_deletion(place: str, waits: bool) -> None:
    """Else its first rows would be deleted with the old ones. A table beside it does not wait."""

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(READABLE, ONE)
        tables = TableDeleter(cast(Any, Buried(AT)), harness.fleet, harness.context.registry, harness.cache)
        if waits:
            with pytest.raises(Waiting, match=f"waits until {AT}, whose object was deleted"):
                await tables.finish("ns", place)
        else:
            await tables.finish("ns", place)
        await harness.fleet.close()

    asyncio.run(scenario())


def test_at_a_chosen_location_it_waits_for_other_namespaces_too() -> None:
    """The condition does not name the other namespace's object. The operator also learns of tombstones that come and go
    later."""

    async def scenario() -> None:
        harness, buried = OperatorHarness(), Buried()
        buried.bodies = []
        tables = TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry, harness.cache)
        await tables.finish("ns", "/lake/spent", everywhere=True)
        theirs = TableAddress(ShardId("published-at/u/theirs.d.v/0f"), "/lake/spent/more")
        await tables.bury(Key(DATAFLOWS, "theirs", "d"), theirs, lambda: None)
        buried.spaces = ["theirs"]
        await tables.finish("ns", "/lake/spent")
        with pytest.raises(Waiting) as waiting:
            await tables.finish("ns", "/lake/spent", everywhere=True)
        assert str(waiting.value) == (
            "waits until the table at /lake/spent of another namespace's Dataflow, which was deleted, is deleted too: "
            f"ControllerRevision {buried.bodies[0]['metadata']['name']} of that namespace lists it, and the operator's "
            "log says who deletes it"
        )
        await tables.finish("ns", "/lake/other", everywhere=True)
        (body,) = buried.bodies
        await tables._tombstones.remove("theirs", _parse(body, "theirs"))
        await tables.finish("ns", "/lake/spent", everywhere=True)
        await harness.fleet.close()

    asyncio.run(scenario())
