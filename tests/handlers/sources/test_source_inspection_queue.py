"""Sources whose inspection hangs keep the operator neither from its other work nor from other sources."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest

from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.resources.manifests import body
from tests.waiting import BOUND
from tidemark_operator.handlers.reconcile import source_inspection_queue
from tidemark_operator.handlers.reconcile.data_source import RETRY_SECONDS, DataSourceReconciler
from tidemark_operator.handlers.reconcile.source_inspection_queue import MAX_INSPECTIONS
from tidemark_operator.handlers.work_queue import WorkQueue
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_protocol.pb import compute_pb2

SPEC = {"instance": "default", "loadGenerator": {"tpch": {}}}
OTHERS = "others"


class Kept:
    """Nothing is stored of them yet."""

    async def all(self, *_: object) -> dict[int, object]:
        return {}

    def forget(self, uid: str) -> None:
        """Nor remembered."""


def test_a_source_that_fails_is_inspected_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is reconciled meanwhile. Another spec, and a source that succeeded, are inspected at once."""
    now = 100.0
    monkeypatch.setattr(source_inspection_queue, "monotonic", lambda: now)

    async def scenario() -> None:
        nonlocal now
        harness, asked, pauses = OperatorHarness(), list[float](), list[float | None]()
        harness.put(READABLE, ONE)
        harness.context.revisions = cast(Any, Kept())

        async def inspect(*_: object) -> compute_pb2.InspectSourceResponse:
            asked.append(now)
            return compute_pb2.InspectSourceResponse(error="denied")

        cast(Any, harness.context.running("ns", "default")).inspect = inspect
        reconciler = DataSourceReconciler(harness.context, cast(Any, None), deleter(harness), lambda _: None)
        written = body("DataSource", SPEC, "s", uid="u", resourceVersion="1")
        key = key_of(DATA_SOURCES, written)
        harness.cache.put(key, written)
        while now < 200:
            pauses.append(await reconciler.reconcile(key, written))
            now += 1
        assert [later - earlier for earlier, later in pairwise(asked)] == [2, 4, 8, 16, 30, 30]
        assert pauses[:4] == [2, 1, 4, 3]

        other = {**written, "spec": {"instance": "default", "loadGenerator": {"tpch": {"seed": 2}}}}
        await reconciler.reconcile(key, other)
        assert asked[-1] == now
        reconciler.forget(key)
        await reconciler.reconcile(key, other)
        assert asked[-2:] == [now, now]
        await harness.fleet.close()

    asyncio.run(scenario())


def test_inspections_that_hang_leave_workers_to_others() -> None:
    """The folders of as many sources as there are workers, and more, do not answer. When they do, the others
    have their turn at once."""

    async def scenario() -> None:
        harness, answers, asked = OperatorHarness(), asyncio.Event(), list[object]()
        harness.put(READABLE, ONE)
        harness.context.revisions = cast(Any, Kept())
        again = dict[Key, float | None]()
        rest, more = asyncio.Event(), asyncio.Event()

        async def inspect(source: object, _: object = None) -> compute_pb2.InspectSourceResponse:
            asked.append(source)
            if len(asked) == 8:
                more.set()
            await answers.wait()
            return compute_pb2.InspectSourceResponse(error="the folder does not answer")

        async def work(key: Key) -> None:
            if key.name == OTHERS:
                rest.set()
                return
            found = harness.cache.get(key)
            assert found is not None
            again[key] = await reconciler.reconcile(key, found)

        cast(Any, harness.context.running("ns", "default")).inspect = inspect
        queue: WorkQueue[Key] = WorkQueue(work)
        reconciler = DataSourceReconciler(harness.context, cast(Any, None), deleter(harness), queue.add)
        working = asyncio.create_task(queue.run())
        for number in range(8):
            written = body("DataSource", SPEC, f"s{number}", uid=f"u{number}", resourceVersion=str(number + 1))
            harness.cache.put(key_of(DATA_SOURCES, written), written)
            queue.add(key_of(DATA_SOURCES, written))
        queue.add(Key(DATA_SOURCES, "ns", OTHERS))
        async with asyncio.timeout(BOUND):
            await rest.wait()
        assert len(asked) == MAX_INSPECTIONS
        assert list(again.values()) == [RETRY_SECONDS] * (8 - MAX_INSPECTIONS)

        answers.set()
        async with asyncio.timeout(BOUND):
            await more.wait()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await harness.fleet.close()

    asyncio.run(scenario())
