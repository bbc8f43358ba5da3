"""Reconciles that the operator starts itself, and the report of a failed reconcile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.handlers.harness import OperatorHarness
from tests.resources.manifests import body, dataflow
from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.handlers.round_robin import MIN_BATCH
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, ApiError, Resource

REVENUE = Key(DATAFLOWS, "ns", "revenue")


def flow(number: int) -> Key:
    return Key(DATAFLOWS, "ns", f"d{number:03}")


def test_must_waiting_objects_are_reconciled_each_minute() -> None:
    """Objects with a plan that serves, or with tables, have their turn; nobody else heals what waits."""
    harness = OperatorHarness()
    count, asked = 3 * MIN_BATCH, list[Key]()
    bodies = [dataflow({}, flow(n).name, uid=f"u-{n}") for n in range(count)]
    there = {DATAFLOWS: bodies, DATA_SOURCES: [body("DataSource", {"instance": "default"}, "s", uid="u-s")]}

    async def listed(resource: Resource) -> list[Any]:
        return there.get(resource, [])

    async def resync() -> None:
        harness.context.kube = cast(Any, SimpleNamespace(list=listed))
        operator = ReconcileLoop(harness.context, asyncio.Event())
        for resource, objects in there.items():
            harness.cache.replace_all(resource, objects)
        cast(Any, operator.queue).add = asked.append
        await operator._revisit()

    for n in range(count):
        serves = cast(Any, None if n == count - 1 else object())
        harness.context.registry.put_dataflow(
            DataflowState(flow(n), f"u-{n}", "default", revisions=RevisionSet(serves))
        )
    source = harness.context.registry.put_source(SourceState(Key(DATA_SOURCES, "ns", "s"), "u-s", "default"))
    asyncio.run(resync())

    assert {flow(count - 1), source.key} <= set(asked)
    assert len(set(asked)) == MIN_BATCH + 2


def test_must_a_failed_reconcile_publishes_its_findings() -> None:
    """It comes again after up to a minute: conditions do not wait for that."""
    harness, shown = OperatorHarness(), list[Key]()

    async def reconcile() -> None:
        operator = ReconcileLoop(harness.context, asyncio.Event())
        harness.cache.replace_all(DATAFLOWS, [dataflow({})])

        async def fails(key: Key, _: object) -> None:
            raise ApiError(500, "away")

        async def publish(key: Key) -> None:
            shown.append(key)

        cast(Any, operator)._dispatch, cast(Any, operator.publisher).publish = fails, publish
        with pytest.raises(ApiError, match="away"):
            await operator._reconcile(REVENUE)

    asyncio.run(reconcile())

    assert shown == [REVENUE]
