"""Sources whose inspection hangs keep the operator neither from its other work nor from other sources."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.tombstones import deleter
from tests.resources.manifests import body
from tests.waiting import BOUND
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


def test_inspections_that_hang_leave_workers_to_others() -> None:
    """As many sources as there are workers, and more, of folders that do not answer. When they do, the others
    have their turn at once."""

    async def scenario() -> None:
        harness, answers, asked = OperatorHarness(), asyncio.Event(), list[object]()
        harness.put(READABLE, ONE)
        harness.context.revisions = cast(Any, Kept())
        again = dict[Key, float | None]()
        rest, more = asyncio.Event(), asyncio.Event()

        async def inspect(source: object) -> compute_pb2.InspectSourceResponse:
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
