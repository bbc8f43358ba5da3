"""The history of tables that are restored together is held until all Dataflows have begun; and notices about adopted
tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tests.handlers.harness import OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev
from tests.protocol.samples import INGESTION
from tests.resources.manifests import body
from tests.waiting import BOUND
from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.handlers.holds.adopted_history_hold import hold_history
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.resources.conditions.dataflow import PlanRefused
from tidemark_protocol.ids import ShardId

LONG_AGO = "2020-01-01T00:00:00Z"
SOURCE = Key(DATA_SOURCES, "ns", "s")
OLD, OWN = (ShardId("old/t/v1"), "/data/ns/s/t/v1"), (ShardId("new/u/v1"), "/data/ns/s/u/v1")


def put(harness: OperatorHarness, kind: str, name: str, created: str = LONG_AGO, **spec: Any) -> Key:
    resource = DATA_SOURCES if kind == "DataSource" else DATAFLOWS
    written = body(kind, {"instance": "default", **spec}, name, uid=name, creationTimestamp=created)
    key = key_of(resource, written)
    harness.cache.put(key, written)
    return key


def refused(reason: str) -> DataflowState:
    state = dataflow("d", None)
    state.obstacles.planning = PlanRefused(reason, "")
    return state


@pytest.mark.parametrize(
    ("adopt", "state", "kept"),
    [
        pytest.param(True, None, True, id="nobody has looked at it yet"),
        pytest.param(True, dataflow("d", None), True, id="it is being planned"),
        pytest.param(True, dataflow("d", rev("d", 1)), False, id="it holds what it reads itself"),
        pytest.param(True, refused("Type"), False, id="it will not run"),
        pytest.param(True, refused("CannotAdopt"), True, id="it may run when its tables were seen to"),
        pytest.param(False, None, False, id="it is a new one"),
    ],
)
def test_adopted_tables_keep_everything_while_a_dataflow_may_want_it(
    adopt: bool, state: DataflowState | None, kept: bool
) -> None:
    """And no longer. Tables of its own follow its policy."""
    harness = OperatorHarness()
    put(harness, "DataSource", "s")
    put(harness, "Dataflow", "d", adopt=adopt)
    if state is not None:
        harness.context.registry.put_dataflow(state)
    book = harness.fleet.book("ns")
    for id, location in (OLD, OWN):
        book.register(id, location, 1_000)

    assert hold_history(harness.context, SOURCE, "new", [OLD, OWN]) == kept
    assert [shard.id for shard in book.all() if shard.holds] == ([OLD[0]] if kept else [])

    harness.cache.remove(Key(DATAFLOWS, "ns", "d"))
    assert not hold_history(harness.context, SOURCE, "new", [OLD, OWN])
    assert not any(shard.holds for shard in book.all())


def test_adopted_tables_keep_everything_at_first() -> None:
    """The manifests of their readers may not have been applied yet."""
    harness = OperatorHarness()
    put(harness, "DataSource", "s", created=datetime.now(UTC).isoformat())
    assert hold_history(harness.context, SOURCE, "new", [OLD])


def test_dataflows_hear_of_tables_that_are_known_now() -> None:
    """First data would not tell of adopted ones."""

    async def scenario() -> None:
        harness, woken = OperatorHarness(), list[Key]()
        operator = ReconcileLoop(harness.context, asyncio.Event())
        reader = put(harness, "Dataflow", "d")
        source = put(harness, "DataSource", "s")
        state = harness.context.registry.put_source(SourceState(source, "s", "default"))

        class Pins:
            async def reconcile(self, *_: object) -> None:
                state.pinned = INGESTION

        operator.sources = cast(Any, Pins())
        reported = asyncio.Event()

        def tell(keys: Iterable[Key]) -> None:
            woken.extend(keys)
            reported.set()

        cast(Any, operator.queue).add_all = tell

        for expected in ([source, reader], []):
            woken.clear()
            await operator._dispatch(source, harness.cache.get(source))
            assert bool(operator._gathering) is bool(expected)
            if expected:
                await asyncio.wait_for(reported.wait(), BOUND)
            assert woken == expected
        await harness.fleet.close()

    asyncio.run(scenario())
