"""The contents that the operator sends to sources of kind introspection: all rows of a namespace, at each tick, after
any error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
import yaml

from tests.gateway.server.test_metrics import fleet
from tests.gateway.source_tables import PINNED, registered
from tests.waiting import until as wait_until
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection import documents, feed, relations
from tidemark_operator.introspection.documents import document
from tidemark_operator.introspection.feed import IntrospectionFeed
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, ApiError
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.relation_columns import COLUMNS, LEASES, TABLES
from tidemark_protocol.ids import GlobalId, ReplicaId, WriterTerm
from tidemark_protocol.pb import compute_pb2, compute_pb2_grpc
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import (
    IngestedTable,
    IntrospectionSource,
    IntrospectionTable,
    SourceTable,
)

CHECKOUT = Path(__file__).parents[3]
SYSTEM = Key(DATA_SOURCES, "ns", "system")


def source(key: Key = SYSTEM, *names: str) -> SourceState:
    """An introspection source with these relations, each of which has its table."""
    named = names or ("frontiers", "tables")
    spec = IntrospectionSource(tuple(IntrospectionTable(name, COLUMNS[name.partition(".")[0]]) for name in named))
    tables = tuple(
        IngestedTable(
            GlobalId(f"u-i/{table.name}"),
            SourceTable(table.name, table.columns),
            ShardMetadata(GlobalId(f"i-{table.name}"), f"/data/i/{table.name}", table.columns),
        )
        for table in spec.tables
    )
    pinned = replace(PINNED, id=GlobalId("u-i"), name=key.name, source=spec, tables=tables)
    return SourceState(key, "u-i", "default", pinned=pinned, ingester=Ingester("r1", WriterTerm(1)))


def context(*more: SourceState) -> ReconcileContext:
    """A source `shop` with tables `orders` and `lines`, and others."""
    made = fleet()
    registry = registered(made)
    for state in more:
        registry.put_source(state)
        for table in state.pinned.tables if state.pinned else ():
            made.book("ns").register(table.shard.shard_id, table.shard.location, 0, owned=True)
    leadership = SimpleNamespace(term=3)
    return cast(ReconcileContext, SimpleNamespace(registry=registry, fleet=made, leadership=leadership))


def names(found: dict[str, Any], relation: str, column: str) -> list[str]:
    return sorted(found["relations"][relation][column])


def test_a_document_tells_its_operator_and_its_moment() -> None:
    before = now_ms()
    found = document(context(), "ns", ("peeks",))
    assert found["term"] == 3
    assert before <= found["moment"] <= now_ms()
    assert set(document(context(), "ns", ("later",))) == {"term", "moment", "obstacle"}


def test_a_document_has_the_rows_of_one_namespace_by_columns() -> None:
    found = document(context(source(Key(DATA_SOURCES, "elsewhere", "secret"))), "ns", TABLES)
    assert set(found["relations"]) == set(TABLES)
    for name, columns in found["relations"].items():
        assert list(columns) == [column.name for column in COLUMNS[name]]
        assert len({len(values) for values in columns.values()}) == 1
    assert names(found, "tables", "table") == ["lines", "orders"]
    assert names(found, "frontiers", "name") == ["shop.lines", "shop.orders"]
    assert "secret" not in json.dumps(found)


def test_rows_of_tables_of_introspection_are_left_out() -> None:
    """They would change at each tick because they changed at the one before, also those of another such source."""
    found = document(context(source(), source(Key(DATA_SOURCES, "ns", "other"))), "ns", ("frontiers", "tables"))
    assert names(found, "frontiers", "name") == ["shop.lines", "shop.orders"]
    assert names(found, "tables", "source") == ["shop", "shop"]


def test_rows_that_are_too_many_are_an_obstacle_that_names_the_relation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 1000)
    found = document(context(), "ns", ("peeks", "frontiers", "tables", "files"))
    assert "relations" not in found
    assert found["obstacle"] == (
        "TooManyRows: the rows of namespace ns take more than 1000 bytes, so the tables stand still: counted were "
        "frontiers 0 MiB, then a part of tables; make spec.introspection.relations shorter"
    )


@pytest.mark.parametrize("name", ["frontiers", "tables"])
def test_of_rows_that_are_too_many_only_the_first_are_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 5000)
    asked, frontiers_of = list[Any](), ShardBook.frontiers
    monkeypatch.setattr(ShardBook, "frontiers", lambda self, id: asked.append(id) or frontiers_of(self, id))
    place = context(source(Key(DATA_SOURCES, "ns", "a"), "frontiers"))
    shop = place.registry.source(Key(DATA_SOURCES, "ns", "shop"))
    assert shop is not None
    assert shop.pinned is not None
    shop.pinned = replace(shop.pinned, tables=shop.pinned.tables * 500)
    assert document(place, "ns", (name,))["obstacle"].startswith("TooManyRows: ")
    assert 0 < len(asked) < 50


def test_a_text_that_is_no_unicode_stops_no_document() -> None:
    body = documents.encoded({"relations": {"files": {"file": ["a\udc80b", "ü"]}}})
    assert json.loads(body)["relations"]["files"]["file"] == ["a?b", "ü"]


def test_rows_that_cannot_be_made_are_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica of another image may tell what is no number."""

    def steps(*_: Any) -> Any:
        yield "a", int("many")

    monkeypatch.setitem(relations._READERS, "steps", steps)
    found = document(context(), "ns", ("peeks", "steps"))
    assert "relations" not in found
    assert found["obstacle"].startswith("RowsNotMade: the rows of relation steps cannot be made, so ")
    assert "ValueError (steps:" in found["obstacle"]
    assert "'many'" in found["obstacle"]


def test_a_relation_of_a_newer_version_is_an_obstacle() -> None:
    assert document(context(), "ns", ("peeks", "later"))["obstacle"].startswith("RelationUnknown: ")


def test_each_relation_is_read_or_comes_from_replicas() -> None:
    assert set(relations._READERS) == {*TABLES, LEASES}


def test_the_manifest_takes_the_relations_that_the_operator_knows() -> None:
    """The CustomResourceDefinition lists the same relations."""
    crd = yaml.safe_load((CHECKOUT / "crds" / "datasources.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert spec["introspection"]["properties"]["relations"]["items"]["enum"] == list(TABLES)
    metadata = {"name": "system", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1"}
    body = {"metadata": metadata, "spec": {"instance": "default", "introspection": {}}}
    every = DataSource.parse(body)
    assert isinstance(every.source, IntrospectionSource)
    assert [table.name for table in every.source.tables] == list(TABLES)
    body["spec"]["introspection"] = {"relations": ["errors"]}
    assert (every.all_relations, DataSource.parse(body).all_relations) == (True, False)


class Ingesting(compute_pb2_grpc.ComputeServicer):
    """A replica that takes documents. `failures`: how many calls it fails first, each in another way."""

    def __init__(self, failures: int) -> None:
        self.failures, self.headers, self.bodies = failures, list[Any](), list[dict[str, Any]]()

    async def WriteRows(self, requests: AsyncIterator[Any], rpc: Any) -> compute_pb2.WriteRowsResponse:
        body = b""
        async for request in requests:
            if request.WhichOneof("part") == "header":
                self.headers.append(request.header)
            body += request.data
        if self.failures:
            self.failures -= 1
            if not self.failures:
                return compute_pb2.WriteRowsResponse(refusal="MALFORMED: no")
            await rpc.abort(grpc.StatusCode.FAILED_PRECONDITION, "this replica does not ingest it yet")
        self.bodies.append(json.loads(body))
        return compute_pb2.WriteRowsResponse()


def test_crash_of_calls_the_feed_goes_on_and_ends_with_the_ingestion(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends nothing while nothing is ingested, nor while another operator may lead. A refusal is reported as an
    obstacle."""
    for name in ("LOOK_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(feed, name, 0.01)
    state, replica = source(SYSTEM, "frontiers", "tables", "frontiers.2"), Ingesting(failures=3)
    assert state.pinned is not None
    state.pinned = replace(state.pinned, tick_ms=10)

    async def until(holds: Any) -> None:
        await asyncio.to_thread(wait_until, holds)

    async def scenario() -> None:
        server = grpc.aio.server()
        compute_pb2_grpc.add_ComputeServicer_to_server(replica, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = compute_pb2_grpc.ComputeStub(channel)  # type: ignore[no-untyped-call]
            made = fed(state, stub)
            made.refusals = 0

            def deposed() -> None:
                made.refusals += 1
                raise ApiError(0, "the Lease was not renewed")

            task = asyncio.create_task(made.feed.run())
            await until(lambda: len(replica.bodies) > 2)
            made.ingests = False
            await until(lambda: all(each.done() for each in made.feed._tasks.values()))
            sent = len(replica.headers)
            made.leads = deposed
            made.ingests = True
            await until(lambda: made.refusals > 2)
            assert len(replica.headers) == sent
            made.leads = lambda: None
            await until(lambda: len(replica.headers) > sent)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert all(each.done() for each in made.feed._tasks.values())
        await server.stop(None)

    asyncio.run(scenario())
    assert {(each.ingestion, each.operation, each.table) for each in replica.headers} == {("u-i", "replace", "")}
    first, second = replica.bodies[:2]
    assert (
        first["obstacle"] == "RowsRefused: the replica does not take the rows, so the tables stand still: MALFORMED: no"
    )
    assert set(second["relations"]) == {"frontiers", "tables"}
    assert [each["moment"] for each in replica.bodies] == sorted({each["moment"] for each in replica.bodies})


def fed(state: SourceState, stub: Any) -> Any:
    """A feed, and whether its source is ingested."""
    place = context(state)
    made = SimpleNamespace(ingests=True, feed=None, leads=lambda: None)
    connected = SimpleNamespace(connection=SimpleNamespace(write_rows=lambda: stub.WriteRows()))
    r1 = ReplicaId("r1")
    running = SimpleNamespace(online=[r1], replicas={r1: connected}, is_ingesting=lambda _: made.ingests)
    leadership = SimpleNamespace(check=lambda: made.leads(), term=3)
    namespace = SimpleNamespace(
        registry=place.registry, fleet=place.fleet, running=lambda *_: running, leadership=leadership
    )
    made.feed = IntrospectionFeed(cast(ReconcileContext, namespace))
    return made


def test_other_sources_are_sent_nothing() -> None:
    made = fed(source(), None)
    shop = made.feed._context.registry.source(Key(DATA_SOURCES, "ns", "shop"))
    assert made.feed._fed(shop.key) is None
    assert made.feed._fed(SYSTEM) is not None
    made.feed._context.registry.forget(SYSTEM)
    assert made.feed._fed(SYSTEM) is None
