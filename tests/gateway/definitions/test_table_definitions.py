"""DataSources that the gateway writes for CREATE TABLE: a real API server with its rights, rules and conflicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.gateway.definitions.test_definitions import USER, Place
from tests.gateway.definitions.test_definitions import run as run
from tests.gateway.registries import add_dataflow, registry, shard_of
from tests.gateway.source_tables import PINNED, ingested
from tests.waiting import BOUND
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.catalogue.relations import catalogue, named_alone
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.auth.access import Forbidden
from tidemark_operator.gateway.definitions import readiness
from tidemark_operator.gateway.definitions.definition import CHANGE_ID, CHANGED_BY
from tidemark_operator.gateway.query.plain_select import RelationNames
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, Body
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_planner.errors import Refusal
from tidemark_planner.sql.names import scope_of
from tidemark_planner.sql.syntax import RelationName, TextSpan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Relation
from tidemark_protocol.pb.gateway_pb2 import TableColumn

COLUMNS = (TableColumn(name="id", type="BIGINT"), TableColumn(name="price", type="DECIMAL(12,2)"))


@pytest.fixture
def unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operator pins the tables, so nobody waits for it."""
    monkeypatch.setattr(readiness, "KNOWN_SECONDS", 0.0)


async def create(place: Place, name: str = "orders", **more: Any) -> str:
    return await place.define(name, "", **{"kind": "table", "columns": COLUMNS, "key": ["id"], **more})


async def drop(place: Place, name: str = "orders", **more: Any) -> str:
    return await place.drop(name, "table", **more)


async def body(place: Place, name: str = "orders") -> Body:
    found = await place.kube.get(DATA_SOURCES, place.namespace, name)
    assert found is not None
    return found


@pytest.mark.cluster
def test_a_user_creates_and_drops_a_table(run: Callable[..., None], unpinned: None) -> None:
    """The object is as kubectl would have made it. A call that comes again, as its operator died after the write, is
    answered as the first one."""

    async def scenario(place: Place) -> None:
        assert await create(place, options={"tick": "200ms", "append_only": "true"}) == "created"
        made = await body(place)
        assert made["metadata"]["annotations"] == {CHANGED_BY: USER, CHANGE_ID: "1"}
        [table] = made["spec"]["table"]["tables"]
        assert (table["name"], table["primaryKey"], table["appendOnly"]) == ("orders", ["id"], True)
        assert [each["type"] for each in table["columns"]] == ["BIGINT", "DECIMAL(12,2)"]
        assert (made["spec"]["tick"], made["spec"]["instance"]) == ("200ms", "default")
        assert await create(place) == "created"
        assert (await body(place))["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        with pytest.raises(DefinitionRefused, match="already exists"):
            await create(place, id="2")
        with pytest.raises(DefinitionRefused, match="already exists"):
            await place.define("orders", id="3")
        assert await create(place, id="4", if_absent=True) == "exists"
        with pytest.raises(DefinitionRefused, match="it may be a new one"):
            await drop(place, repeated=True)
        assert await drop(place, table="orders") == "deleted"
        assert await drop(place, repeated=True) == "deleted"
        assert await drop(place, if_present=True) == "absent"

    run(scenario)


@pytest.mark.cluster
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_each_statement_needs_its_own_verb(run: Callable[..., None], unpinned: None, verb: str) -> None:
    async def scenario(place: Place) -> None:
        spec = {"instance": "default", "table": {"tables": [{"name": "t", "columns": [{"name": "a", "type": "INT"}]}]}}
        await place.kube.create(DATA_SOURCES, place.namespace, {"metadata": {"name": "there"}, "spec": spec})
        outcomes = {"create": lambda: create(place, "new"), "delete": lambda: drop(place, "there", table="t")}
        for each, ask in outcomes.items():
            if each != verb:
                with pytest.raises(Forbidden, match=f"{USER} may not {each} datasources"):
                    await ask()
        assert await outcomes[verb]() in ("created", "deleted")

    run(scenario, verb)


@pytest.mark.cluster
def test_what_the_api_server_refuses_is_not_stored(run: Callable[..., None], unpinned: None) -> None:
    async def scenario(place: Place) -> None:
        for more, message, sqlstate in (
            ({"options": {"tick": "1ms"}}, "spec.tick", "22023"),
            ({"columns": [TableColumn(name="a", type="BINARY")], "key": []}, "must be one of BOOLEAN", "22023"),
            ({"columns": [TableColumn(name="__a", type="INT")], "key": []}, "must not begin with __", "22023"),
            ({"columns": [], "key": []}, "spec.table.tables", "22023"),
            ({"name": "a_b"}, "cannot be the name of a DataSource", "42602"),
            ({"id": "1 2"}, "letters and digits", "22023"),
            ({"action": "createOrReplace"}, "it is not replaced", "0A000"),
            ({"options": {"refresh_every": "1h"}}, "is not of instance", "22023"),
        ):
            with pytest.raises(DefinitionRefused, match=message) as failed:
                await create(place, **more)
            assert failed.value.sqlstate == sqlstate
        assert await place.kube.list(DATA_SOURCES, namespace=place.namespace) == []

    run(scenario)


@pytest.mark.cluster
def test_waiting_ends_with_ready_or_with_a_reason_that_stays(run: Callable[..., None]) -> None:
    async def scenario(place: Place) -> None:
        async def state(name: str, generation: int, status: str, reason: str) -> None:
            ready = {"type": "Ready", "status": status, "reason": reason, "message": "because"}
            uid = (await stored(place, name))["metadata"]["uid"]
            if uid not in known:
                known.add(uid)
                place.registry.put_source(SourceState(Key(DATA_SOURCES, place.namespace, name), uid, "default"))
            label = {"metadata": {"labels": {"state": f"{generation}-{reason}"}}}  # the cache takes newer bodies alone
            found = await place.kube.patch(DATA_SOURCES, place.namespace, name, label)
            conditions = [{**ready, "observedGeneration": generation}]
            place.cache.put(Key(DATA_SOURCES, place.namespace, name), {**found, "status": {"conditions": conditions}})

        known = set[str]()
        made = asyncio.create_task(create(place, wait=True))
        await state("orders", 0, "True", "Ingesting")  # of an earlier generation
        await asyncio.sleep(0.3)
        for reason in ("Starting", "NoReplicaOnline"):
            await state("orders", 1, "False", reason)
            await asyncio.sleep(0.3)
        failure = IngestionFailure("TablesBeingDeleted", "waits until they are deleted", passes=True)
        fail(place, "orders", failure)
        await state("orders", 1, "False", failure.reason)
        await asyncio.sleep(0.3)
        fail(place, "orders", None)  # and the condition is one of before
        await asyncio.sleep(0.3)
        assert not made.done()
        await state("orders", 1, "True", "Ingesting")
        assert await made == "created"
        failing = asyncio.create_task(create(place, "lines", id="2", wait=True))
        await state("lines", 1, "False", "InstanceNotFound")
        with pytest.raises(DefinitionRefused, match=r"DataSource lines is stored.* InstanceNotFound: because"):
            await failing
        failing = asyncio.create_task(create(place, "adopted", id="3", wait=True))
        await state("adopted", 1, "False", "Starting")
        fail(place, "adopted", IngestionFailure("CannotAdopt", "they have other columns"))
        with pytest.raises(DefinitionRefused, match="CannotAdopt: they have other columns") as refused:
            await failing
        assert refused.value.sqlstate == "55000"

    run(scenario)


@pytest.mark.cluster
def test_without_waiting_create_ends_once_statements_may_name_the_table(run: Callable[..., None]) -> None:
    async def scenario(place: Place) -> None:
        made = asyncio.create_task(create(place))
        found = await stored(place, "orders")
        await asyncio.sleep(0.3)
        assert not made.done()
        place.registry.put_source(source(place.namespace, found["metadata"]["uid"], "orders"))
        assert (await made, place.warning) == ("created", "")

    run(scenario)


@pytest.mark.cluster
def test_create_tells_why_a_table_cannot_begin(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where somebody has to change something, and after its time where it waits for something that passes."""

    async def scenario(place: Place) -> None:
        for name, failure, seconds in (
            ("wrong", IngestionFailure("CannotAdopt", "they have other columns"), 60.0),
            ("late", IngestionFailure("TablesBeingDeleted", "waits", passes=True), 0.5),
        ):
            monkeypatch.setattr(readiness, "KNOWN_SECONDS", seconds)
            making = asyncio.create_task(create(place, name, id=name))
            found, key = await stored(place, name), Key(DATA_SOURCES, place.namespace, name)
            place.registry.put_source(SourceState(key, found["metadata"]["uid"], "default", failure=failure))
            ready = {"type": "Ready", "status": "False", "reason": failure.reason, "message": failure.message}
            place.cache.put(key, {**found, "status": {"conditions": [{**ready, "observedGeneration": 1}]}})
            assert await making == "created"
            told = f"DataSource {name} is stored, and takes no rows yet: {failure.reason}: {failure.message}"
            assert place.warning == told

    run(scenario)


@pytest.mark.cluster
@pytest.mark.parametrize("edits", ["spec", "labels"])
def test_drop_deletes_the_object_that_was_checked(run: Callable[..., None], edits: str) -> None:
    """Another adds a table to it after the checks; a label is no conflict."""

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("orders", "orders"))
        patches: list[Body] = [{"metadata": {"labels": {"a": "b"}}}]
        if edits == "spec":
            patches = [{"spec": of_tables("orders", "orders", "lines")["spec"]}]
        get = place.kube.get

        async def followed(*asked: Any) -> Body | None:
            found = await get(*asked)
            if patches:
                await place.kube.patch(DATA_SOURCES, place.namespace, "orders", patches.pop())
            return found

        cast(Any, place.kube).get = followed
        if edits == "labels":
            assert await drop(place) == "deleted"
            assert await get(DATA_SOURCES, place.namespace, "orders") is None
            return
        with pytest.raises(DefinitionRefused, match="was just changed by another") as refused:
            await drop(place)
        assert refused.value.sqlstate == "40001"
        assert (await body(place))["metadata"]["uid"] == made["metadata"]["uid"]
        with pytest.raises(DefinitionRefused) as refused:
            await drop(place)
        assert refused.value.sqlstate == "0A000"

    run(scenario)


def of_tables(name: str, *tables: str) -> Body:
    columns = [{"name": "id", "type": "BIGINT"}]
    spec = {"instance": "default", "table": {"tables": [{"name": each, "columns": columns} for each in tables]}}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.cluster
def test_drop_ends_once_the_table_takes_no_rows(run: Callable[..., None]) -> None:
    async def scenario(place: Place) -> None:
        key = Key(DATA_SOURCES, place.namespace, "orders")
        for is_marked in (False, True):
            made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("orders", "orders"))
            place.cache.put(key, made)
            place.registry.put_source(source(place.namespace, made["metadata"]["uid"], "orders"))
            dropping = asyncio.create_task(drop(place))
            await asyncio.sleep(0.5)
            assert not dropping.done()
            if is_marked:
                metadata = {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
                place.cache.put(key, {**made, "metadata": {**metadata, "resourceVersion": "999999999"}})
            else:
                place.registry.forget(key)
            assert await dropping == "deleted"

    run(scenario)


@pytest.mark.cluster
def test_create_if_not_exists_takes_a_table_that_another_made_meanwhile(run: Callable[..., None]) -> None:
    """Also where it saw none, and it ends once statements may name the other's table."""

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("orders", "orders"))
        get, unseen = place.kube.get, list[int]()

        async def late(*asked: Any) -> Body | None:
            if unseen:
                unseen.pop()
                return None
            return await get(*asked)

        cast(Any, place.kube).get = late
        unseen.append(1)
        with pytest.raises(DefinitionRefused, match="already exists"):
            await create(place, id="2")
        for number in (0, 1):
            place.registry.forget(Key(DATA_SOURCES, place.namespace, "orders"))
            unseen.extend([1] * number)
            waiting = asyncio.create_task(create(place, id="3", if_absent=True))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            place.registry.put_source(source(place.namespace, made["metadata"]["uid"], "orders"))
            assert await waiting == "exists"
            assert unseen == []

    run(scenario)


def fail(place: Place, name: str, failure: IngestionFailure | None) -> None:
    """The operator's reconciliation fails so, or does not any more."""
    state = place.registry.source(Key(DATA_SOURCES, place.namespace, name))
    assert state is not None
    state.failure = failure


async def stored(place: Place, name: str) -> Body:
    for _ in range(int(BOUND / 0.05)):
        if (found := await place.kube.get(DATA_SOURCES, place.namespace, name)) is not None:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} was not stored")


def source(namespace: str, uid: str, *tables: str, name: str = "orders") -> SourceState:
    named = tuple(
        replace(ingested(name), table=replace(PINNED.tables[0].table, name=name), shard=shard_of(name))
        for name in tables
    )
    return SourceState(Key(DATA_SOURCES, namespace, name), uid, "default", pinned=replace(PINNED, tables=named))


def test_the_name_alone_is_that_of_the_one_of_its_name_or_of_the_only_one() -> None:
    """The rule holds for DataSources and Dataflows, for reading and for writing."""
    for parent, names, alone in (
        ("shop", ["orders", "lines"], None),
        ("shop", ["lines", "shop"], "shop"),
        ("shop", ["orders"], "orders"),
        ("shop", ["orders", "orders_dead_letter"], "orders"),
        ("shop", ["orders_dead_letter"], "orders_dead_letter"),
        ("shop", ["orders", "lines_dead_letter"], None),
        ("shop", [], None),
    ):
        assert named_alone(parent, names) == alone
    known = Registry()
    known.put_source(source("ns", "u", "orders", "orders_dead_letter", name="shop"))
    known.put_source(source("ns", "v", "orders", "lines", name="lines"))
    add_dataflow(known, "view", shards=("s.a",))
    relations = RelationNames.of(catalogue(known.sources("ns"), known.dataflows("ns"))).relations
    assert {name: relations[name,].name for name in ("shop", "lines", "view")} == {
        "shop": "orders",
        "lines": "lines",
        "view": "e",
    }


def test_a_table_of_its_sources_name_is_read_by_that_alone() -> None:
    """With a Dataflow of that name, which kubectl may make, it means neither: no statement reads another's rows."""
    known = registry()
    known.put_source(source("ns", "u", "orders", "lines"))
    names = RelationNames.of(catalogue(known.sources("ns"), known.dataflows("ns"))).relations
    assert names["orders",] == names["orders", "orders"]
    assert ("s",) not in names
    add_dataflow(known, "orders", shards=("s.a",))
    names = RelationNames.of(catalogue(known.sources("ns"), known.dataflows("ns"))).relations
    assert ("orders",) not in names
    assert ("orders", "lines") in names
    known.put_source(source("ns", "u", "e", name="e"))
    both = Relation("e", "e", GlobalId("view"), (), short=True)
    relations = *catalogue(known.sources("ns"), ()).relations, both
    with pytest.raises(Refusal, match=r"e is ambiguous: a DataSource and a Dataflow have e\.e; delete one of them"):
        scope_of(Catalogue(relations), ()).resolve(RelationName(("e",), True, TextSpan(0, 0, 1, 1), frozenset()))
