"""Replica processes are kept, and the instance's settings hold, whatever the resources say."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.harness import ANOTHER, ONE, READABLE, UNREADABLE, OperatorHarness
from tests.resources.manifests import body
from tidemark_operator.controller.frontiers.read_policy import KEEP_ALL_MS
from tidemark_operator.handlers.reconcile.dataflow import DataflowReconciler
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS


@pytest.mark.parametrize(
    ("instance", "replica", "kept"),
    [
        (READABLE, ONE, True),
        (UNREADABLE, ONE, True),
        (READABLE, ANOTHER, True),
        (UNREADABLE, ANOTHER, True),
        (None, ONE, False),
        (READABLE, None, False),
        (UNREADABLE, None, False),
        (READABLE | {"suspend": True}, ONE, False),
        (UNREADABLE, ONE | {"suspend": True}, False),
    ],
)
def test_an_unreadable_resource_goes_on_with_its_last_spec(
    instance: dict[str, Any] | None, replica: dict[str, Any] | None, kept: bool
) -> None:
    """Its process goes on, and its connection. A deleted or suspended one ends. A new operator knows as much."""

    async def scenario() -> None:
        before, after = OperatorHarness(), OperatorHarness()
        before.put(READABLE, ONE)
        assert before.connected == ["r1"]
        try:
            before.put(instance, replica)
            after.put(instance, replica)
            assert before.orchestrator.kept == after.orchestrator.kept == ({"u-r1"} if kept else set())
            assert before.connected == (["r1"] if kept else [])
        finally:
            await before.fleet.close()
            await after.fleet.close()

    asyncio.run(scenario())


LAGGING = READABLE | {"readPolicy": {"lag": "10m"}}


@pytest.mark.parametrize(
    ("before", "now", "lag"),
    [
        (LAGGING, UNREADABLE, 600_000),
        (LAGGING, READABLE, 60_000),
        (LAGGING, READABLE | {"readPolicy": {"lag": "0s"}}, 0),
        (UNREADABLE, UNREADABLE, None),
        (LAGGING, None, None),
    ],
)
def test_an_instance_that_cannot_be_read_keeps_its_read_policy(
    before: dict[str, Any], now: dict[str, Any] | None, lag: int | None
) -> None:
    """History that was promised is not let go by a guess."""

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(before, ONE)
        harness.put(now, ONE)
        facts = harness.context.instance_facts("ns", "default")
        reconciler = DataflowReconciler(harness.context, *[cast(Any, None)] * 3)
        dataflow = body("Dataflow", {"instance": "default", "sql": "SELECT 1 AS a", "index": {"key": ["a"]}}, "d")
        state = reconciler.adopt(key_of(DATAFLOWS, dataflow), dataflow)
        reconciler.read_spec(state, dataflow)
        assert harness.context.lag_ms("ns", "default") == lag
        assert state.spec.lag_ms == (KEEP_ALL_MS if lag is None else lag)
        assert (facts.found, bool(facts.unreadable)) == (now is not None, now is UNREADABLE)
        await harness.fleet.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("instance", "replica"), [(READABLE, ANOTHER), (UNREADABLE, ONE)])
def test_a_deleted_replica_is_not_kept(instance: dict[str, Any], replica: dict[str, Any]) -> None:
    """Readable or not."""

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(instance, replica, deletionTimestamp="2026-01-01T00:00:00Z")
        assert harness.orchestrator.kept == set()
        await harness.fleet.close()

    asyncio.run(scenario())
