"""Tables that are deleted after their object has gone: never one that another object has."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.revisions import dataflow, rev, table
from tests.handlers.tombstones import Buried
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import DeleteShard


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

        await TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry).collect("ns")

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

        await TableDeleter(cast(Any, buried), harness.fleet, harness.context.registry).collect("ns")

        assert (sent, bool(buried.bodies)) == ([], True)
        await harness.fleet.close()

    asyncio.run(scenario())
