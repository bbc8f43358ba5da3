"""A published table is deleted with its Dataflow, under `deletionPolicy: Delete`, and before another one is made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.revisions import dataflow, rev
from tests.handlers.tombstones import Buried
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.deletion.dataflow_deletion import DataflowDeletion
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import DeleteShard
from tidemark_protocol.messages.responses import ShardDeleted
from tidemark_protocol.plan.dataflow import MaterializedViewSink
from tidemark_protocol.plan.publish import PublishedView, published_folder, published_location

AT = published_location("/data", "ns", "d", "v")


def publishing(mark: ActiveRevision) -> ActiveRevision:
    """The same, with its view published."""
    (export,) = mark.revision.description.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = replace(export, sink=replace(export.sink, publish=PublishedView(AT, "ns.d.v", 1000, 24)))
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
        tables = TableDeleter(cast(Any, Buried()), harness.fleet, harness.context.registry)
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
            tables.requests.answered("default", ReplicaId("r1"), ShardDeleted(command.id), now_ms())
        assert await deletion._delete_tables(state, cast(Any, body))
        await harness.fleet.close()

    asyncio.run(scenario())


def test_another_dataflow_of_its_name_waits_for_the_deletion() -> None:
    """Else its first rows would be deleted with the old ones."""

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(READABLE, ONE)
        tables = TableDeleter(cast(Any, Buried(AT)), harness.fleet, harness.context.registry)
        with pytest.raises(Waiting, match="waits until"):
            await tables.finish_below("ns", published_folder("/data", "ns", "d"))
        await tables.finish_below("ns", published_folder("/data", "ns", "other"))
        await harness.fleet.close()

    asyncio.run(scenario())
