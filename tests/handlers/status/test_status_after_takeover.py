"""A Dataflow that took over with the edit of another one says so in its status later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.handlers import revised_dataflows
from tests.handlers.harness import OperatorHarness
from tests.handlers.revised_dataflows import rev
from tests.resources.manifests import dataflow
from tidemark_operator.handlers.reconcile.dataflow import DataflowReconciler


@pytest.mark.parametrize("goes", [False, True])
def test_a_status_is_late_no_longer_than_it_must_be(goes: bool) -> None:
    """Also where its ComputeInstance is gone: edits of what it reads wait for it. Of what goes nobody needs it, and one
    that the API server refuses would keep it there."""
    harness, written = OperatorHarness(), list[dict[str, Any]]()
    state = revised_dataflows.dataflow("b", rev("b", 2))
    revised_dataflows.mark(state, unmarked=True)
    harness.context.registry.put_dataflow(state)
    metadata = {"deletionTimestamp": "2026-11-23T00:00:00Z"} if goes else {}
    body = dataflow({"sql": "SELECT 1", "index": {"key": ["1"]}}, "b", uid=state.uid, **metadata)

    async def store(_: object, status: dict[str, Any], __: str) -> None:
        written.append(status)

    async def nothing(*_: object) -> bool:
        return True

    cast(Any, harness.context).revisions = SimpleNamespace(prune=nothing)
    deleter = cast(Any, SimpleNamespace(delete=nothing))
    reconciler = DataflowReconciler(harness.context, cast(Any, SimpleNamespace(store=store)), deleter, lambda _: None)
    asyncio.run(reconciler.reconcile(state.key, body))

    assert [status["revision"]["name"] for status in written] == ([] if goes else ["b-r2"])
    assert state.revisions.unmarked == goes
