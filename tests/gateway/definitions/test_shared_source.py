"""Tables that SQL adds to one DataSource by `source.table`, and takes out of it: a real API server with its rights,
rules and conflicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.definitions.test_definitions import USER, Place
from tests.gateway.definitions.test_definitions import run as run
from tests.gateway.definitions.test_table_definitions import body, create, drop, of_tables, source
from tests.gateway.definitions.test_table_definitions import unpinned as unpinned
from tests.gateway.registries import add_dataflow
from tests.gateway.source_tables import PINNED
from tests.waiting import BOUND
from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.auth.access import Forbidden
from tidemark_operator.gateway.definitions import readiness, shared_source
from tidemark_operator.gateway.definitions.definition import CHANGE_ID, CHANGED_BY
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, Body, Conflict
from tidemark_operator.planning.revision import Parent
from tidemark_operator.planning.table_edit import MAX_REMOVED
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.pb.gateway_pb2 import TableColumn

LINES = [TableColumn(name="line", type="INT")]


async def add(place: Place, table: str, **more: Any) -> str:
    return await create(place, "shop", **{"action": "add", "table": table, "id": table, **more})


async def names(place: Place) -> list[str]:
    return [each["name"] for each in (await body(place, "shop"))["spec"]["table"]["tables"]]


async def stored(place: Place, *tables: str) -> None:
    """Wait until the DataSource has these tables."""
    for _ in range(int(BOUND / 0.05)):
        if await names(place) == [*tables]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the tables are not {tables}")


def following(place: Place, call: str, edits: list[Callable[[], Any]]) -> None:
    """Before each of the next writes of this kind, another edits the object."""
    write = getattr(place.kube, call)

    async def followed(*asked: Any, **more: Any) -> Any:
        if edits:
            await edits.pop()()
        return await write(*asked, **more)

    setattr(cast(Any, place.kube), call, followed)


@pytest.mark.cluster
def test_tables_of_a_source_come_and_go(run: Callable[..., None], unpinned: None) -> None:
    """The first one makes the DataSource, the last one takes it along. A call that comes again is answered as the first
    one."""

    async def scenario(place: Place) -> None:
        for _ in range(2):
            assert await add(place, "orders", options={"tick": "200ms"}) == "created"
            assert "DataSource shop is stored, and table orders takes no rows yet" in place.warning
        for _ in range(2):
            lines = {"columns": LINES, "key": [], "options": {"append_only": "true"}}
            assert await add(place, "lines", **lines) == "created"
        found = await body(place, "shop")
        assert found["metadata"]["annotations"] == {CHANGED_BY: USER, CHANGE_ID: "lines orders"}
        assert (found["metadata"]["generation"], found["spec"]["tick"]) == (2, "200ms")
        orders, lines = found["spec"]["table"]["tables"]
        assert (orders["name"], orders["primaryKey"], orders["appendOnly"]) == ("orders", ["id"], False)
        assert (lines["name"], lines["appendOnly"], [c["name"] for c in lines["columns"]]) == ("lines", True, ["line"])
        assert await add(place, "lines", id="9", if_absent=True) == "exists"
        with pytest.raises(DefinitionRefused, match=r'relation "shop\.lines" already exists'):
            await add(place, "lines", id="9")
        with pytest.raises(DefinitionRefused, match=r"several tables \(orders, lines\): write shop\.TABLE"):
            await drop(place, "shop")
        with pytest.raises(DefinitionRefused, match="it may be a new one"):
            await drop(place, "shop", table="lines", repeated=True)
        assert await drop(place, "shop", table="lines") == "deleted"
        assert await names(place) == ["orders"]
        assert await drop(place, "shop", table="lines", repeated=True) == "deleted"
        assert await drop(place, "shop", table="lines", if_present=True) == "absent"
        with pytest.raises(DefinitionRefused, match=r'table "shop\.lines" does not exist'):
            await drop(place, "shop", table="lines")
        assert await drop(place, "shop", table="orders") == "deleted"
        assert await place.kube.list(DATA_SOURCES, namespace=place.namespace) == []

    run(scenario)


@pytest.mark.cluster
@pytest.mark.parametrize("verbs", ["create", "patch", "delete", "list"])
def test_each_edit_needs_the_right_to_what_becomes_of_the_object(
    run: Callable[..., None], unpinned: None, verbs: str
) -> None:
    """A user who has none of the rights does not learn whether the DataSource is there."""

    async def scenario(place: Place) -> None:
        await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders", "lines"))
        await place.kube.create(DATA_SOURCES, place.namespace, of_tables("one", "t"))
        adds = "patch datasources shop" if verbs == "create" else "create datasources in"
        drops = "patch datasources shop" if verbs == "delete" else "delete datasources shop"
        for verb, otherwise, ask in (
            ("create", "create datasources in", lambda: create(place, "new", action="add", table="t")),
            ("patch", adds, lambda: add(place, "more")),
            ("patch", drops, lambda: drop(place, "shop", table="lines")),
            ("delete", "delete datasources one", lambda: drop(place, "one", table="t")),
            ("delete", "delete datasources none", lambda: drop(place, "none", table="t", if_present=True)),
        ):
            if verb == verbs:
                assert await ask() in ("created", "deleted", "absent")
            else:
                with pytest.raises(Forbidden, match=f"{USER} may not {otherwise}"):
                    await ask()

    run(scenario, verbs)


@pytest.mark.cluster
def test_clients_that_add_at_once_have_all_tables(run: Callable[..., None], unpinned: None) -> None:
    async def scenario(place: Place) -> None:
        tables = [f"t{number}" for number in range(4)]
        assert await asyncio.gather(*(add(place, table) for table in tables)) == ["created"] * 4
        assert sorted(await names(place)) == tables
        outcomes = await asyncio.gather(
            *(add(place, "same", id=f"same{number}", if_absent=True) for number in range(3)),
            drop(place, "shop", table="t0"),
            drop(place, "shop", table="t1"),
        )
        assert sorted(outcomes) == ["created", "deleted", "deleted", "exists", "exists"]
        assert sorted(await names(place)) == ["same", "t2", "t3"]

    run(scenario)


@pytest.mark.cluster
def test_an_edit_looks_again_at_what_another_wrote_meanwhile(run: Callable[..., None], unpinned: None) -> None:
    async def scenario(place: Place) -> None:
        async def made() -> Body:
            return await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "first"))

        async def gone() -> None:
            found = await body(place, "shop")
            await place.kube.delete(DATA_SOURCES, place.namespace, "shop", found["metadata"]["uid"])

        plain = place.kube.patch
        following(place, "create", [made])
        assert await add(place, "orders") == "created"
        assert await names(place) == ["first", "orders"]
        for edit, outcome, left in (
            (lambda: plain(DATA_SOURCES, place.namespace, "shop", {"metadata": {"labels": {"a": "b"}}}), "created", 3),
            (gone, "created", 1),
        ):
            following(place, "patch", [edit])
            assert await add(place, f"with{left}") == outcome
            assert len(await names(place)) == left
        cast(Any, place.kube).patch = plain
        await add(place, "taken")
        entries = (await body(place, "shop"))["spec"]["table"]["tables"]
        only = {"spec": {"table": {"tables": entries[1:]}}}
        following(place, "patch", [lambda: plain(DATA_SOURCES, place.namespace, "shop", only)])
        with pytest.raises(DefinitionRefused, match="was just changed by another") as refused:
            await drop(place, "shop", table="taken")  # it is the only one now, and the DataSource would go with it
        assert refused.value.sqlstate == "40001"
        assert await names(place) == ["taken"]

    run(scenario)


@pytest.mark.cluster
def test_what_does_not_fit_the_source_is_refused(run: Callable[..., None], unpinned: None) -> None:
    async def scenario(place: Place) -> None:
        await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders"))
        many = of_tables("shop", *(f"t{number}" for number in range(32)))
        for more, message, sqlstate in (
            (
                {"options": {"tick": "5s"}},
                "is there, with tick 1s: leave out the option, or create a DataSource of another name",
                "22023",
            ),
            ({"options": {"tick": "soon"}}, "is there, with tick 1s", "22023"),
            ({"options": {"instance": "other"}}, "default: leave out the option, or create a DataSource of", "22023"),
            ({"options": {"adopt": "true"}}, "that is added to it is empty: leave out the option adopt", "22023"),
            ({"options": {"sekret": "1"}}, "is not of instance", "22023"),
            ({"table": "order_lines"}, "cannot be the name of a table", "42602"),
            ({"table": ""}, "cannot be the name of a table", "42602"),
            ({"columns": [TableColumn(name="__a", type="INT")], "key": []}, "must not begin with __", "22023"),
            ({"kind": "index"}, "action 'add' is not of", "22023"),
        ):
            with pytest.raises(DefinitionRefused, match=message) as refused:
                await add(place, more.pop("table", "lines"), **more, id="1")
            assert refused.value.sqlstate == sqlstate
        same = {"tick": "1000ms", "adopt": "false", "deletion_policy": "retain"}
        assert await add(place, "lines", options=same) == "created"
        await place.kube.patch(DATA_SOURCES, place.namespace, "shop", {"spec": {"adopt": True}})
        with pytest.raises(DefinitionRefused, match="leave out the option adopt"):  # it adopts its first tables alone
            await add(place, "adopting", options={"adopt": "true"})
        await place.kube.patch(DATA_SOURCES, place.namespace, "shop", {"spec": many["spec"]})
        with pytest.raises(DefinitionRefused, match="has 32 tables") as refused:
            await add(place, "more")
        assert refused.value.sqlstate == "54000"
        files = {
            "instance": "default",
            "files": {"path": "/files", "tables": [{"name": "t", "path": "t", "format": "csv"}]},
        }
        await place.kube.create(DATA_SOURCES, place.namespace, {"metadata": {"name": "files"}, "spec": files})
        with pytest.raises(DefinitionRefused, match="is no table that rows are written into"):
            await create(place, "files", action="add", table="more")

    run(scenario)


@pytest.mark.cluster
def test_a_view_and_a_source_do_not_come_to_share_a_name(run: Callable[..., None], unpinned: None) -> None:
    """A source's name alone means its only table, or that of its name."""

    async def scenario(place: Place) -> None:
        assert await place.define("shop", id="v") == "created"
        with pytest.raises(DefinitionRefused, match="it is a Dataflow, and would mean table orders, too") as refused:
            await add(place, "orders")
        assert refused.value.sqlstate == "42P07"
        await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders", "lines"))
        with pytest.raises(DefinitionRefused, match="would mean table shop, too"):
            await add(place, "shop")
        with pytest.raises(DefinitionRefused, match="would then mean table orders, too: drop Dataflow shop") as refused:
            await drop(place, "shop", table="lines")
        assert refused.value.sqlstate == "2BP01"
        views = {
            "views": [{"name": "w", "sql": "SELECT 1 AS a"}],
            "exports": [{"name": "new", "index": {"from": "w"}}],
        }
        exporting = {"metadata": {"name": "exporting"}, "spec": {"instance": "default", **views}}
        await place.kube.create(DATAFLOWS, place.namespace, exporting)
        with pytest.raises(DefinitionRefused, match=r"already exists: Dataflow exporting exports it"):
            await create(place, "exporting", action="add", table="new", id="new")
        assert await add(place, "more") == "created"
        assert await drop(place, "shop", table="lines") == "deleted"

    run(scenario)


@pytest.mark.cluster
def test_a_name_that_was_dropped_is_not_given_again(run: Callable[..., None], unpinned: None) -> None:
    """The bindings may still name the first table's rows; the operator would refuse the table (`TableNameUsed`)."""

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders"))
        known = source(place.namespace, made["metadata"]["uid"], "orders", "late", "later.2", name="shop")
        known.pinned = replace(known.pinned or PINNED, removed=("lines", "wide.2"))
        place.registry.put_source(known)
        for table in ("lines", "wide", "late", "later"):
            with pytest.raises(
                DefinitionRefused, match=f"had a table {table}, whose name is not given again"
            ) as failed:
                await add(place, table)
            assert failed.value.sqlstate == "55000"
        assert await add(place, "new") == "created"

    run(scenario)


@pytest.mark.cluster
def test_drop_looks_at_the_readers_of_the_table_and_waits_for_the_gateway(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders", "lines", "last"))
        uid = made["metadata"]["uid"]
        place.registry.put_source(source(place.namespace, uid, "orders", "lines", "last", name="shop"))
        reads(place, "view", "orders")
        reads(place, "gone", "lines")
        assert await place.define("view") == "created"
        with pytest.raises(DefinitionRefused, match=r'"shop\.orders" because Dataflow view reads it') as refused:
            await drop(place, "shop", table="orders")
        assert refused.value.sqlstate == "2BP01"
        dropping = asyncio.create_task(drop(place, "shop", table="lines"))
        await stored(place, "orders", "last")
        await asyncio.sleep(3 * readiness.POLL_SECONDS)
        assert not dropping.done()
        place.registry.put_source(source(place.namespace, uid, "orders", "last", name="shop"))
        assert await dropping == "deleted"

    run(scenario)


def reads(place: Place, dataflow: str, table: str) -> None:
    """A Dataflow with an active revision that imports this table of `shop`, as the operator knows it."""
    made = Registry()
    add_dataflow(made, dataflow, shards=(table,))
    state = made.dataflow(Key(DATAFLOWS, "ns", dataflow))
    assert state is not None
    assert state.active is not None
    revision = replace(state.active.revision, reads=(Parent(DATA_SOURCES.kind, "shop"),))
    revisions = RevisionSet(replace(state.active, revision=revision))
    key = Key(DATAFLOWS, place.namespace, dataflow)
    place.registry.put_dataflow(DataflowState(key, dataflow, "default", revisions=revisions))


@pytest.mark.cluster
def test_create_ends_once_statements_may_name_the_table(run: Callable[..., None]) -> None:
    """The other tables of the DataSource are known before."""

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders"))
        uid = made["metadata"]["uid"]
        place.registry.put_source(source(place.namespace, uid, "orders", name="shop"))
        adding = asyncio.create_task(add(place, "lines"))
        await stored(place, "orders", "lines")
        await asyncio.sleep(3 * readiness.POLL_SECONDS)
        assert not adding.done()
        place.registry.put_source(source(place.namespace, uid, "orders", "lines", name="shop"))
        assert (await adding, place.warning) == ("created", "")

    run(scenario)


@pytest.mark.cluster
@pytest.mark.parametrize("verbs", ["create", "patch"])
def test_a_call_that_writes_nothing_needs_either_right(run: Callable[..., None], unpinned: None, verbs: str) -> None:
    """It comes twice, or finds the table."""

    async def scenario(place: Place) -> None:
        if verbs == "create":
            assert await add(place, "orders") == "created"
        else:
            await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "lines"))
            assert await add(place, "orders") == "created"
        assert await add(place, "orders") == "created"
        assert await add(place, "orders", id="other", if_absent=True) == "exists"

    run(scenario, verbs)


@pytest.mark.cluster
def test_a_table_that_is_dropped_ends_the_statement_that_waits_for_it(run: Callable[..., None]) -> None:
    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders"))
        place.registry.put_source(source(place.namespace, made["metadata"]["uid"], "orders", name="shop"))
        adding = asyncio.create_task(add(place, "lines"))
        await stored(place, "orders", "lines")
        assert await drop(place, "shop", table="lines") == "deleted"
        for call in (adding, add(place, "lines")):  # also one that comes again
            with pytest.raises(
                DefinitionRefused, match=r"table shop\.lines was created .* and dropped since"
            ) as failed:
                await call
            assert failed.value.sqlstate == "55000"

    run(scenario)


@pytest.mark.cluster
def test_another_table_that_cannot_be_edited_does_not_fail_one_that_begins(run: Callable[..., None]) -> None:
    """With `wait`, until the table has its rows."""

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders"))
        book, upper = Book({}), Frontier.at(5)
        place.definitions._shared._context.fleet = cast(Any, SimpleNamespace(book=lambda _: book))
        uid, edit = made["metadata"]["uid"], IngestionFailure("ColumnsNotAdded", "table orders: column a is another")
        place.registry.put_source(source(place.namespace, uid, "orders", name="shop"))
        adding = asyncio.create_task(add(place, "lines", wait=True))
        await stored(place, "orders", "lines")
        known = source(place.namespace, uid, "orders", "lines", name="shop")
        known.edit, known.reconciled = edit, 9
        place.registry.put_source(known)
        await asyncio.sleep(3 * readiness.POLL_SECONDS)
        assert not adding.done()
        book.uppers = {each.shard.shard_id: upper for _, each in known.tables()}
        assert await adding == "created"
        with pytest.raises(DefinitionRefused, match="table more takes no rows yet: ColumnsNotAdded"):
            await add(place, "more", wait=True)

    run(scenario)


@dataclass
class Book:
    """In the place of what the operator knows of shards."""

    uppers: dict[ShardId, Frontier]

    def frontiers(self, shard: ShardId) -> Any:
        return SimpleNamespace(upper=self.uppers[shard]) if shard in self.uppers else None


@pytest.mark.cluster
def test_no_table_is_added_whose_name_may_have_rows(run: Callable[..., None], unpinned: None) -> None:
    """The stored state of the DataSource, by an earlier version of the operator, may be unreadable, for example."""

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders"))
        known = source(place.namespace, made["metadata"]["uid"], name="shop")
        known.pinned, known.refused = None, IngestionFailure("RevisionUnreadable", "its format is not known")
        place.registry.put_source(known)
        with pytest.raises(DefinitionRefused, match="had are not known: its format is not known") as failed:
            await add(place, "lines")
        assert failed.value.sqlstate == "55000"

    run(scenario)


@pytest.mark.cluster
def test_a_table_that_still_takes_rows_is_dropped_with_a_warning(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Dataflow began to read it meanwhile, for example. So it is with a whole DataSource."""
    monkeypatch.setattr(readiness, "KNOWN_SECONDS", 0.3)

    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders", "lines"))
        known = source(place.namespace, made["metadata"]["uid"], "orders", "lines", name="shop")
        known.edit = IngestionFailure("TableInUse", "table lines: Dataflow late reads it")
        place.registry.put_source(known)
        assert await drop(place, "shop", table="lines") == "deleted"
        assert place.warning == (
            "DataSource shop is stored without table lines, and rows are still taken for it: TableInUse: table lines: "
            "Dataflow late reads it"
        )
        known.edit = None
        assert await drop(place, "shop") == "deleted"
        assert place.warning.startswith("shop is being deleted, and rows are still taken for it: ")

    run(scenario)


@pytest.mark.cluster
def test_what_keeps_the_api_server_from_creating_a_source_is_told(
    run: Callable[..., None], unpinned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota that others change at the same time is a conflict, too."""
    monkeypatch.setattr(shared_source, "PAUSE_SECONDS", 0)

    async def scenario(place: Place) -> None:
        async def conflicting(*_: Any) -> Body:
            raise Conflict(409, '409: {"message": "the object has been modified: quota small"}')

        monkeypatch.setattr(place.kube, "create", conflicting)
        with pytest.raises(DefinitionRefused, match=r"did not create DataSource shop: .*quota small") as failed:
            await add(place, "lines")
        assert failed.value.sqlstate == "40001"

    run(scenario)


@pytest.mark.cluster
def test_refusals_of_a_drop_name_the_table_as_the_statement_does(run: Callable[..., None], unpinned: None) -> None:
    """Also where the whole DataSource would go."""

    async def scenario(place: Place) -> None:
        with pytest.raises(DefinitionRefused, match=r'table "shop\.lines" does not exist'):
            await drop(place, "shop", table="lines")
        await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "lines"))
        reads(place, "view", "lines")
        assert await place.define("view") == "created"
        with pytest.raises(DefinitionRefused, match=r'cannot drop "shop\.lines" because Dataflow view reads it'):
            await drop(place, "shop", table="lines")

    run(scenario)


@pytest.mark.cluster
def test_a_drop_that_the_operator_could_not_follow_is_refused(run: Callable[..., None], unpinned: None) -> None:
    async def scenario(place: Place) -> None:
        made = await place.kube.create(DATA_SOURCES, place.namespace, of_tables("shop", "orders", "lines"))
        known = source(place.namespace, made["metadata"]["uid"], "orders", "lines", name="shop")
        known.pinned = replace(known.pinned or PINNED, removed=tuple(f"t{number}" for number in range(MAX_REMOVED)))
        place.registry.put_source(known)
        with pytest.raises(DefinitionRefused, match="1000 tables were dropped from DataSource shop") as failed:
            await drop(place, "shop", table="lines")
        assert failed.value.sqlstate == "54000"
        assert await names(place) == ["orders", "lines"]

    run(scenario)


@pytest.mark.cluster
def test_the_instance_of_a_session_counts_for_new_objects_alone(run: Callable[..., None], unpinned: None) -> None:
    async def scenario(place: Place) -> None:
        assert await add(place, "orders", instance="other") == "created"
        assert (await body(place, "shop"))["spec"]["instance"] == "default"  # its option
        assert await add(place, "lines", instance="other") == "created"

    run(scenario)
