"""Tables that are still to be deleted, as the API server lists them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.handlers.harness import OperatorHarness
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter


class Buried:
    """The API server's list of tombstones. `listed`, `emptied`: set once it was asked, and once the last is gone.
    `spaces`: the namespaces that have them; any one where it is empty."""

    def __init__(self, *locations: str) -> None:
        shards = [{"id": f"old/{at}", "location": at} for at in locations]
        self.deleted: list[str] = []
        self.spaces: list[str] = []
        self.listed, self.emptied = asyncio.Event(), asyncio.Event()
        self.bodies = [{"metadata": {"name": "tombstone-old", "uid": "u"}, "data": {"shards": shards}}]

    async def list(self, resource: object, labels: str, namespace: str) -> list[Any]:
        self.listed.set()
        return self.bodies if not self.spaces or namespace in ("", *self.spaces) else []

    async def create(self, _: object, namespace: str, body: dict[str, Any]) -> None:
        self.bodies.append({**body, "metadata": {**body["metadata"], "uid": "u"}})

    async def delete(self, _: object, namespace: str, name: str, uid: str) -> None:
        self.bodies = []
        self.emptied.set()
        self.deleted.append(name)


def deleter(harness: OperatorHarness, *locations: str) -> TableDeleter:
    """To which these are left."""
    return TableDeleter(cast(Any, Buried(*locations)), harness.fleet, harness.context.registry, harness.cache)
