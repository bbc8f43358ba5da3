"""Calls that write rows over gRPC: the text of a lost answer says whether the call may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from tests.gateway.source_tables import PINNED
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.errors import QueryNotReady, QueryRefused, WriteRefused, WriteUnknown
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.gateway.server.status import sqlstate_of, status_of
from tidemark_operator.gateway.streams.insert import LOST_WITHOUT_KEY, Inserts, WriteTarget
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import DATA_SOURCES, INSTANCES
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.ids import ReplicaId, ShardId, WriterTerm
from tidemark_protocol.pb import compute_pb2_grpc, gateway_pb2
from tidemark_protocol.plan.ingestion import WrittenSource, WrittenTable
from tidemark_protocol.types import BIGINT, Column

SPEC_OF = {"instance": "default"}
SPEC = WrittenSource((WrittenTable("orders", (Column("a", BIGINT),)),))


class Replica(compute_pb2_grpc.ComputeServicer):
    """Takes a call, and ends it with a status. `keys`: those of the calls."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code, self.keys = code, list[str]()

    async def WriteRows(self, requests: AsyncIterator[Any], rpc: Any) -> None:
        async for request in requests:
            if request.WhichOneof("part") == "header":
                self.keys.append(request.header.key)
        await rpc.abort(self.code, "the ingestion ended; repeat the call with the same key")


class Anyone(Access):
    caller = "anne"

    async def check(self, *actions: Any) -> None:
        return


class Inserter(Access):
    caller = "ben"

    async def check(self, *actions: Any) -> None:
        if any(action.verb != "create" for action in actions):
            raise Forbidden("no")


async def body() -> AsyncIterator[bytes]:
    yield b"a\n1\n"


def failure(code: grpc.StatusCode, key: str) -> tuple[str, str]:
    """The text with which a call ends that the replica ends with `code`, and the key that the replica got."""

    async def scenario() -> tuple[str, str]:
        replica, server = Replica(code), grpc.aio.server()
        compute_pb2_grpc.add_ComputeServicer_to_server(replica, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = compute_pb2_grpc.ComputeStub(channel)  # type: ignore[no-untyped-call]
                inserts = Inserts(context(stub), GatewayLimits())
                with pytest.raises(WriteUnknown) as failed:
                    await inserts.write(Anyone(), WriteTarget("ns", "shop", "", "insert", "csv", key), body())
        finally:
            await server.stop(None)
        return str(failed.value), replica.keys[0]

    return asyncio.run(scenario())


def context(stub: Any, ingests: bool = True) -> ReconcileContext:
    """A source of one table, whose ingester is at the other end of the stub. `ingests` False: it is suspended."""
    pinned, ingester = replace(PINNED, source=SPEC, tables=PINNED.tables[:1]), Ingester("r1", WriterTerm(1))
    registry, key = Registry(), Key(DATA_SOURCES, "ns", "shop")
    registry.put_source(SourceState(key, "u-s", "default", pinned=pinned, ingester=ingester))
    r1 = ReplicaId("r1")
    connected = SimpleNamespace(connection=SimpleNamespace(write_rows=lambda: stub.WriteRows()))
    running = SimpleNamespace(online={r1}, replicas={r1: connected}, is_ingesting=lambda _: ingests)
    return cast(ReconcileContext, SimpleNamespace(registry=registry, running=lambda *_: running, cache=Cache()))


@pytest.mark.parametrize("code", [grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN])
def test_a_lost_call_is_to_be_repeated_with_its_key_alone(code: grpc.StatusCode) -> None:
    text, key = failure(code, "k")
    assert ("repeat the call with the same key" in text, key) == (True, "k")

    text, key = failure(code, "")
    assert text == LOST_WITHOUT_KEY
    assert "the rows may be in the table" in text
    assert key


@pytest.mark.parametrize(
    ("operation", "sections", "error"),
    [
        ("", ("insert", "delete"), Forbidden),
        ("", ("insert", "replace"), QueryRefused),
        ("insert", ("delete",), QueryRefused),
        ("", (), QueryRefused),
    ],
)
def test_each_operation_of_a_call_needs_its_right(
    operation: str, sections: tuple[str, ...], error: type[Exception]
) -> None:
    """The caller may insert. An older replica would do the operation of a call, and leave its sections out."""
    made = tuple(gateway_pb2.WriteSection(operation=name, rows=4) for name in sections)
    target = WriteTarget("ns", "shop", "orders", operation, "csv", "k", sections=made)
    with pytest.raises(error):
        asyncio.run(Inserts(context(None), GatewayLimits()).write(Inserter(), target, body()))


def test_a_suspended_source_takes_no_rows_and_the_text_says_where_to_look() -> None:
    call = Inserts(context(None, ingests=False), GatewayLimits()).write(
        Anyone(), WriteTarget("ns", "shop", "orders", "insert", "csv", "k"), body()
    )
    with pytest.raises(QueryNotReady, match=r"DataSource shop is not ingested now: .* Its conditions say which"):
        asyncio.run(call)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_source_that_cannot_begin_is_told_apart_from_one_that_starts(pinned: bool) -> None:
    """By the condition, or by what the operator failed at, which may be newer. Before the operator has seen the object,
    it starts."""
    place, key = context(None, ingests=False), Key(DATA_SOURCES, "ns", "shop")
    inserts, state = Inserts(place, GatewayLimits()), place.registry.source(key)
    assert state is not None
    if not pinned:
        state.pinned = None

    def tried(text: str, sqlstate: str) -> None:
        target = WriteTarget("ns", "shop", "orders", "insert", "csv", "k")
        with pytest.raises(QueryNotReady, match=text) as failed:
            asyncio.run(inserts.write(Anyone(), target, body()))
        status = status_of(failed.value)
        assert status is not None
        assert (status.grpc, status.http) == (grpc.StatusCode.FAILED_PRECONDITION, 503)
        assert sqlstate_of(failed.value, status) == sqlstate

    def said(reason: str, version: str) -> None:
        metadata = {"name": "shop", "namespace": "ns", "uid": "u-s", "generation": 1, "resourceVersion": version}
        ready = {"type": "Ready", "status": "False", "reason": reason, "message": "m", "observedGeneration": 1}
        place.cache.put(key, {"metadata": metadata, "spec": SPEC_OF, "status": {"conditions": [ready]}})

    said("Starting", "1")
    tried("not ingested now" if pinned else "is starting", "57P03")
    said("InstanceSuspended", "2")
    tried("DataSource shop takes no rows: InstanceSuspended: m", "55000")
    state.failure = IngestionFailure("CannotAdopt", "of before it was suspended")
    tried("DataSource shop takes no rows: InstanceSuspended: m", "55000")
    instance = Key(INSTANCES, "ns", "default")
    metadata = {"name": "default", "namespace": "ns", "uid": "i", "generation": 1, "resourceVersion": "1"}
    for suspend, version in ((True, "1"), (False, "2")):
        state.failure = None
        place.cache.put(instance, {"metadata": {**metadata, "resourceVersion": version}, "spec": {"suspend": suspend}})
        resumed = "not ingested now" if pinned else "is starting"
        tried("InstanceSuspended" if suspend else resumed, "55000" if suspend else "57P03")
    state.failure = IngestionFailure("TablesBeingDeleted", "waits", passes=True)
    tried("not ingested now" if pinned else "is starting", "57P03")
    state.failure = IngestionFailure("CannotAdopt", "other columns")
    tried("DataSource shop takes no rows: CannotAdopt: other columns", "55000")
    state.failure = None
    place.registry.forget(key)
    said("InvalidSpec", "3")
    tried("takes no rows: InvalidSpec", "55000")
    said("Starting", "4")
    tried("is starting: repeat the call", "57P03")


def test_a_source_that_is_being_deleted_takes_no_rows() -> None:
    """The registry may know it until its readers are gone. One that was made anew by its name is another one."""
    place = context(None, ingests=False)
    inserts, key = Inserts(place, GatewayLimits()), Key(DATA_SOURCES, "ns", "shop")
    target = WriteTarget("ns", "shop", "orders", "insert", "csv", "k")
    metadata = {"name": "shop", "namespace": "ns", "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    place.cache.put(key, {"metadata": {**metadata, "uid": "earlier"}})
    asyncio.run(inserts.describe(Anyone(), "ns", "shop", "", "insert"))
    place.cache.put(key, {"metadata": {**metadata, "uid": "u-s", "resourceVersion": "2"}})
    for call in (
        inserts.describe(Anyone(), "ns", "shop", "", "insert"),
        inserts.write(Anyone(), target, body()),
    ):
        with pytest.raises(WriteRefused, match="NO_SUCH_TABLE: DataSource shop in namespace ns is being deleted"):
            asyncio.run(call)


def test_a_table_that_got_columns_is_written_by_its_name_and_is_no_other_table() -> None:
    """Rows that were made before have NULL there: a call whose answer was lost can be repeated."""
    place = context(None)
    inserts, state = Inserts(place, GatewayLimits()), place.registry.source(Key(DATA_SOURCES, "ns", "shop"))
    assert state is not None
    assert state.pinned is not None
    [first] = state.pinned.tables
    first = replace(first, shard=replace(first.shard, shard_id=ShardId("u-s/orders/v1")))
    state.pinned = replace(state.pinned, tables=(first,))
    table, id = asyncio.run(inserts.describe(Anyone(), "ns", "shop", "", "insert"))
    assert table == SPEC.tables[0]

    now = replace(table, name="orders.2", columns=(*table.columns, Column("b", BIGINT)), added=("b",))
    shard = replace(first.shard, shard_id=ShardId("u-s/orders.2/v1"))
    second = replace(first, table=replace(first.table, name="orders.2", columns=now.columns), shard=shard)
    state.pinned = replace(state.pinned, source=WrittenSource((table, now)), tables=(first, second))
    for name in ("", "orders"):
        found, later = asyncio.run(inserts.describe(Anyone(), "ns", "shop", name, "insert"))
        assert (found, later) == (replace(now, name="orders"), f"{id}+1")
    with pytest.raises(WriteRefused, match=r"has no table orders\.2: orders"):
        asyncio.run(inserts.describe(Anyone(), "ns", "shop", "orders.2", "insert"))
    state.pinned = replace(state.pinned, source=WrittenSource((now,)), tables=(second,))
    assert asyncio.run(inserts.describe(Anyone(), "ns", "shop", "", "insert")) == (found, f"{id}+1")

    place.running("ns", "default").is_ingesting = lambda _: False  # type: ignore[union-attr, method-assign]
    for operation, given, error in (
        ("insert", id, QueryNotReady),
        ("insert", "other", WriteRefused),
        ("upsert", f"{id}+1", QueryNotReady),
        ("upsert", id, WriteRefused),
    ):
        target = WriteTarget("ns", "shop", "orders", operation, "csv", "k", table_id=given)
        with pytest.raises(error, match="not ingested now" if error is QueryNotReady else "TABLE_CHANGED"):
            asyncio.run(inserts.write(Anyone(), target, body()))
