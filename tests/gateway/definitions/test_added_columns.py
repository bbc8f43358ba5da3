"""Columns that the gateway adds to a table for ALTER TABLE: a real API server, and what the statement waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.definitions.test_definitions import USER, Place
from tests.gateway.definitions.test_definitions import run as run
from tests.gateway.definitions.test_table_definitions import body
from tests.gateway.definitions.test_table_definitions import unpinned as unpinned
from tests.gateway.source_tables import PINNED, ingested
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.definitions import readiness
from tidemark_operator.gateway.definitions.definition import CHANGE_ID, CHANGED_BY
from tidemark_operator.gateway.definitions.readiness import until_columns
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.pb.gateway_pb2 import DefineRequest, TableColumn
from tidemark_protocol.types import BIGINT, Column

KEY = Key(DATA_SOURCES, "ns", "shop")
WRITTEN = {
    "metadata": {"name": "shop", "uid": "u", "generation": 2, "resourceVersion": "2"},
    "spec": {"instance": "i", "table": {"tables": [{"name": "orders"}]}},
}


@pytest.mark.cluster
def test_a_user_adds_columns_to_a_table(run: Callable[..., None], unpinned: None) -> None:
    """By `patch` alone. A call that comes again is answered as the first one, also after another one's edit."""

    async def add(place: Place, *names: str, **more: Any) -> str:
        columns = [TableColumn(name=name, type="INT") for name in names]
        asked = {"action": "replace", "kind": "table", "columns": columns, "options": {}, "id": "2", **more}
        request = DefineRequest(namespace=place.namespace, name=asked.pop("name", "orders"), **asked)
        defined = await place.definitions.define(place.access, request)
        place.warning = defined.warning
        return defined.outcome

    async def scenario(place: Place) -> None:
        table = {"name": "orders", "columns": [{"name": "id", "type": "BIGINT"}], "primaryKey": ["id"]}
        spec = {"instance": "default", "table": {"tables": [table], "maxTransactionBytes": "7Mi"}}
        made = {"metadata": {"name": "orders"}, "spec": spec}
        await place.kube.create(DATA_SOURCES, place.namespace, made)
        for _ in range(2):
            assert await add(place, "a") == "replaced"
        assert "its table has not the columns yet" in place.warning
        found = await body(place)
        assert found["metadata"]["annotations"] == {CHANGED_BY: USER, CHANGE_ID: "2"}
        assert [c["name"] for c in found["spec"]["table"]["tables"][0]["columns"]] == ["id", "a"]
        assert found["spec"]["table"]["maxTransactionBytes"] == "7Mi"
        assert await add(place, "b", id="3", table="orders") == "replaced"
        assert await add(place, "a") == "replaced"
        assert await add(place, "A", id="4", if_absent=True) == "exists"
        assert await add(place, "a", name="none", if_present=True) == "absent"
        for more, sqlstate in (
            ({"id": "5"}, "42701"),
            ({"id": "5", "name": "none"}, "42P01"),
            ({"id": "5", "table": "lines"}, "42P01"),
            ({"id": "5", "options": {"tick": "5s"}}, "0A000"),
            ({"id": "5", "columns": [TableColumn(name="c", type="INT", required=True)]}, "0A000"),
            ({"id": "5", "columns": [TableColumn(name="c", type="BINARY")]}, "22023"),
        ):
            with pytest.raises(DefinitionRefused) as refused:
                await add(place, "a", **more)
            assert refused.value.sqlstate == sqlstate
        assert (await body(place))["metadata"]["generation"] == 3

    run(scenario, "patch")


class Waiting:
    """A statement that waits for column `B` of `orders`. `states`: what the operator knows of the DataSource."""

    def __init__(self, waits: bool) -> None:
        self.cache, self.registry, self.book = Cache(), Registry(), ShardBook()
        self.there: Any = WRITTEN
        parts = {"registry": self.registry, "cache": self.cache, "fleet": SimpleNamespace(book=lambda _: self.book)}
        context = cast(ReconcileContext, SimpleNamespace(kube=SimpleNamespace(get=self.get), **parts))
        self.task = asyncio.create_task(until_columns(context, KEY, cast(Any, WRITTEN), "orders", ["B"], waits))

    async def get(self, *_: object) -> Any:
        return self.there

    def knows(self, *names: str, edit: IngestionFailure | None = None, generation: int = 2) -> None:
        """Stored tables; `orders.2` has the column."""
        tables = []
        for name in names:
            one = ingested(name)
            columns = (*one.table.columns, Column("b", BIGINT)) if name == "orders.2" else one.table.columns
            shard = replace(one.shard, shard_id=name)
            tables.append(replace(one, table=replace(one.table, name=name, columns=columns), shard=shard))
            self.book.register(shard.shard_id, shard.location, 0)
        pinned = replace(PINNED, tables=tuple(tables))
        self.registry.put_source(SourceState(KEY, "u", "default", pinned=pinned, edit=edit, reconciled=generation))

    async def is_done(self) -> bool:
        await asyncio.sleep(3 * readiness.POLL_SECONDS)
        return self.task.done()


@pytest.mark.parametrize("waits", [False, True])
def test_the_statement_ends_once_others_may_name_the_column(waits: bool) -> None:
    """Where it waits, once the table has its rows."""

    async def scenario() -> None:
        statement = Waiting(waits)
        statement.knows("orders")
        assert not await statement.is_done()
        statement.knows("orders", "orders.2")
        assert await statement.is_done() != waits
        statement.book.observe(cast(Any, "orders.2"), Frontier.at(9), Frontier.at(8))
        assert await statement.task == ""

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [False, True])
def test_the_statement_tells_why_the_column_does_not_come(waits: bool) -> None:
    """Once the operator has seen the edit, and where the reason does not pass."""

    async def scenario() -> None:
        statement, failure = Waiting(waits), IngestionFailure("TooManyTables", "delete some")
        statement.knows("orders", edit=failure, generation=1)
        assert not await statement.is_done()
        statement.knows("orders", edit=IngestionFailure("WaitingForInspection", "in line"))
        assert not await statement.is_done()
        statement.knows("orders", edit=failure)
        told = "DataSource shop is stored, and its table has not the columns yet: TooManyTables: delete some"
        if waits:
            with pytest.raises(DefinitionRefused, match=told) as refused:
                await statement.task
            assert refused.value.sqlstate == "55000"
        else:
            assert await statement.task == told

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [False, True])
def test_the_statement_ends_where_the_data_source_is_deleted(waits: bool) -> None:
    async def scenario() -> None:
        statement = Waiting(waits)
        statement.knows("orders")
        assert not await statement.is_done()
        statement.there = None
        with pytest.raises(DefinitionRefused, match="was deleted while the statement waited"):
            await statement.task

    asyncio.run(scenario())
