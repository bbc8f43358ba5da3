"""The status of a Dataflow that took over with the edit of another says so later, whatever else is there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.handlers import revisions
from tests.handlers.revisions import rev
from tests.handlers.worlds import Somewhere
from tests.resources.manifests import dataflow
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.handlers.reconcile_dataflow import DataflowReconciler
from tidemark_operator.kube.client import ApiError, Conflict, Invalid


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-11-23T00:00:00Z"}], ids=["stays", "goes"])
def test_a_status_is_late_no_longer_than_it_must_be(metadata: dict[str, Any]) -> None:
    """Also where its ComputeInstance is gone, or it goes itself: edits of what it reads wait for it."""
    somewhere, written = Somewhere(), list[dict[str, Any]]()
    state = revisions.dataflow("b", rev("b", 2))
    state.unmarked = True
    somewhere.world.registry.put_dataflow(state)
    body = dataflow({"sql": "SELECT 1", "index": {"key": ["1"]}}, "b", uid=state.uid, **metadata)

    async def store(_: object, status: dict[str, Any], __: str) -> None:
        written.append(status)

    async def nothing(*_: object) -> bool:
        return True

    cast(Any, somewhere.world).revisions = SimpleNamespace(prune=nothing)
    deleter = cast(Any, SimpleNamespace(delete=nothing))
    reconciler = DataflowReconciler(somewhere.world, cast(Any, SimpleNamespace(store=store)), deleter, lambda _: None)
    asyncio.run(reconciler.reconcile(state.key, body))

    assert [status["revision"]["name"] for status in written] == ["b-r2"]
    assert not state.unmarked


@pytest.mark.parametrize("error", [Invalid(422, "too long"), ApiError(500, "a webhook fails"), Conflict(409, "moved")])
def test_a_status_that_cannot_be_written_keeps_nothing_that_goes(error: ApiError) -> None:
    """Our finalizer goes; where it stays for another's, its status is tried again."""
    somewhere, finalizers = Somewhere(), list[list[str]]()
    state = revisions.dataflow("b", rev("b", 2))
    state.unmarked = True
    somewhere.world.registry.put_dataflow(state)
    metadata = {"deletionTimestamp": "2026-11-23T00:00:00Z", "finalizers": [FINALIZER, "another/s"]}
    spec = {"sql": "SELECT 1", "index": {"key": ["1"]}}
    body = dataflow(spec, "b", uid=state.uid, resourceVersion="1", **metadata)
    somewhere.cache.put(state.key, body)

    async def refused(*_: object) -> None:
        raise error

    async def patch(*of: Any) -> dict[str, Any]:
        finalizers.append(of[-1]["metadata"]["finalizers"])
        return {**body, "metadata": {**body["metadata"], **of[-1]["metadata"]}}

    cast(Any, somewhere.world).kube = SimpleNamespace(patch=patch)
    none = cast(Any, None)
    reconciler = DataflowReconciler(somewhere.world, cast(Any, SimpleNamespace(store=refused)), none, lambda _: None)
    again = asyncio.run(reconciler.reconcile(state.key, body))

    assert finalizers == [["another/s"]]
    assert again is not None
    assert state.unmarked
