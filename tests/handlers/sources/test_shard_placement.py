"""Addresses that are no place for an object's tables, and why."""

from __future__ import annotations

import asyncio

from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev, table
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.handlers.revisions.shard_placement import shard_locations
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES


def test_a_used_or_doomed_location_is_refused() -> None:
    """Its own is one. A Dataflow and a DataSource of one name have the same addresses."""
    buried = "/data/ns/d/gone/v1"

    async def scenario() -> None:
        harness = OperatorHarness()
        registry, graves = harness.context.registry, deleter(harness, buried)
        theirs = registry.put_dataflow(dataflow("d", rev("d", 1, view=1), rev("d", 2, view=2)))
        source = SourceState(Key(DATA_SOURCES, "ns", "d"), "new", "default")

        seen = await shard_locations(registry, graves, source, "/data", adopts=False)
        own = await shard_locations(registry, graves, theirs, "/data", adopts=False)

        marked = {table("d", version).location: "that of Dataflow ns/d" for version in (1, 2)}
        assert seen.taken == {buried: "to be deleted", **marked}
        assert own.taken == {buried: "to be deleted"}

    asyncio.run(scenario())
