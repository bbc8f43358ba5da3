"""Dataflows never read each other, whichever is edited first, or at one moment: each would wait for the other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, cast

import pytest

from tests.controller.harness import at
from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import READABLE, OperatorHarness
from tests.handlers.revised_dataflows import ask
from tests.protocol.samples import ROW, A
from tests.resources.manifests import body
from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.revisions.plan_revision import RevisionPlanner
from tidemark_operator.handlers.revisions.planner_queue import PlannerQueue
from tidemark_operator.handlers.revisions.revision_marks import RevisionMarks
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATAFLOWS, INSTANCES, Body
from tidemark_operator.kube.revisions import RevisionOwner, build_revision
from tidemark_operator.resources.conditions.dataflow import PlanRefused
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import Meta
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.messages.responses import DescribedShard, Description
from tidemark_protocol.plan.dataflow import BuildDesc, SourceImport
from tidemark_protocol.plan.lir import Constant, Get

NAMES = ("a", "b")
VIEW = PlannedExport("v", "materializedView", GlobalId("o"), (A,), ())


class Stored:
    """Revisions at the API server."""

    def __init__(self) -> None:
        self._bodies: dict[str, dict[int, Body]] = defaultdict(dict)

    async def of(self, owner: Meta) -> list[Body]:
        return list(self._bodies[owner.name].values())

    async def store(self, owner: RevisionOwner, number: int, value: Any) -> str:
        written = self._bodies[owner.meta.name][number] = build_revision(owner, number, value)
        return str(written["metadata"]["name"])

    async def prune(self, owner: Meta, keep: set[str]) -> None: ...


class Server:
    """An API server that takes each finalizer, status and Event."""

    async def patch(self, resource: object, namespace: str, name: str, patch: Body) -> Body:
        return written(name, version="2", finalizers=patch["metadata"]["finalizers"])

    async def store(self, *_: object) -> None: ...

    async def warn(self, *_: object) -> None: ...


def written(name: str, sql: str = "", version: str = "1", location: str = "", **metadata: Any) -> Body:
    spec: dict[str, Any] = {"instance": "default", "materializedView": {}, "sql": sql or "nothing"}
    if location:
        export = {"name": "v", "materializedView": {"from": "v", "publish": {"location": location}}}
        spec = {"instance": "default", "views": [{"name": "v", "sql": sql}], "exports": [export]}
    return body("Dataflow", spec, name, uid=f"u-{name}", resourceVersion=version, **metadata)


class Two:
    """Views that serve. Text is the name of what is read."""

    def __init__(self) -> None:
        harness = OperatorHarness()
        harness.put(READABLE, None)
        self.close, self.context = harness.fleet.close, harness.context
        self.context.kube, self.context.revisions = cast(Any, Server()), cast(Any, Stored())
        self.context.planner, self.context.events = cast(Any, self), cast(Any, Server())
        marks = RevisionMarks(self.context, cast(Any, Server()))
        self._reviser = RevisionPlanner(self.context, marks, deleter(harness), PlannerQueue(lambda key: None))
        running = self.context.running("ns", "default")
        assert running is not None
        self._running = running
        running.describe = self.describe  # type: ignore[method-assign]
        for name in NAMES:
            key = key_of(DATAFLOWS, written(name))
            self.context.cache.put(key, written(name))
            self.context.registry.put_dataflow(DataflowState(key, f"u-{name}", "default"))

    def state(self, name: str) -> DataflowState:
        state = self.context.registry.dataflow(Key(DATAFLOWS, "ns", name))
        assert state is not None
        return state

    async def plan(self, request: PlanRequest) -> Planned:
        read = request.views[0].sql
        if read not in NAMES:
            return Planned((), (BuildDesc(VIEW.on, Constant((), ROW)),), (VIEW,), (), "")
        active = self.state(read).active
        assert active is not None
        shard = active.revision.view_shard("v")
        assert shard is not None
        id = GlobalId(shard.shard_id)
        imports = (SourceImport(id, shard, (0,)),)
        return Planned(imports, (BuildDesc(VIEW.on, Get(id, ROW)),), (VIEW,), (id,), "")

    async def describe(self, shards: Iterable[tuple[ShardId, str]]) -> tuple[ReplicaId, Description]:
        """Takes a moment, in which others go on."""
        await asyncio.sleep(0.01)
        found = tuple(DescribedShard(id, False, at(0), at(0), WriterTerm(0)) for id, _ in shards)
        return ReplicaId("r1"), Description("incarnation", None, 0, (), (), found)

    async def serve(self, name: str) -> None:
        """Plans the view, and reports its table."""
        assert await self.edit(name, "nothing") == ""
        active = self.state(name).active
        assert active is not None
        shard = active.revision.view_shard("v")
        assert shard is not None
        self.context.fleet.book("ns").register(shard.shard_id, shard.location)
        self.context.fleet.book("ns").observe(shard.shard_id, at(500), at(0))

    async def edit(self, name: str, sql: str, location: str = "") -> str:
        """The reason, where it is refused."""
        state, dataflow = self.state(name), Dataflow.parse(written(name, sql, location=location))
        ask(state, digest=spec_digest(dataflow))
        refused = await self._reviser.revise(state, dataflow, self._running)
        return refused.reason if isinstance(refused, PlanRefused) else ""


def test_of_two_edits_at_one_moment_that_make_a_cycle_one_is_refused() -> None:
    """Each is planned on what the other was before."""

    async def scenario() -> None:
        two = Two()
        for name in NAMES:
            await two.serve(name)

        refusals = await asyncio.gather(two.edit("a", "b"), two.edit("b", "a"))
        assert sorted(refusals) == ["", "Cycle"]
        assert sum(two.state(name).pending is not None for name in NAMES) == 1
        await two.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("other", ["/lake/spent", "/lake/spent/more", "/lake/more"])
@pytest.mark.parametrize("edited", [True, False])
def test_of_two_edits_at_one_moment_to_one_place_one_waits(other: str, edited: bool) -> None:
    """Neither is published there when the other one is checked, and the manifests are others by then."""

    async def scenario() -> None:
        two = Two()
        two.context.cache.put(
            Key(INSTANCES, "ns", "default"),
            body("ComputeInstance", READABLE | {"publish": {"locations": ["/lake"]}}, "default", resourceVersion="2"),
        )
        if edited:
            for name in NAMES:
                await two.serve(name)

        edits = two.edit("a", "nothing", "/lake/spent"), two.edit("b", "nothing", other)
        done = await asyncio.gather(*edits, return_exceptions=True)
        taken = [each.reason for each in done if isinstance(each, Waiting)]
        assert taken == ([] if other == "/lake/more" else ["LocationTaken"])
        assert done.count("") == 2 - len(taken)
        assert all(two.state(name).planning.places == frozenset() for name in NAMES)
        await two.close()

    asyncio.run(scenario())
