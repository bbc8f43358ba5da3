"""Tables that no object has: what a listing says of each, and which of them may be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from tests.handlers.deletion.test_published_deletion import AT, publishing
from tests.handlers.deletion.tombstones import Buried
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev
from tests.resources.manifests import body
from tidemark_operator.errors import QueryNotReady, QueryRefused, Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.introspection import retained_tables as module
from tidemark_operator.introspection.relations import RETAINED_TABLES, rows
from tidemark_operator.introspection.retained_tables import RetainedTableList, RetainedTables
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, ApiError, Conflict
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.pb.compute_pb2 import ListedShard, ListShardsResponse
from tidemark_protocol.plan.sinks.publish import location_hash, removal_id, removal_of

ROOT = "/data/ns"


def listed(name: str, owner: str = "gone", error: str = "") -> ListedShard:
    id = "" if error else f"{owner}/{name.partition('/')[2]}"
    return ListedShard(location=f"{ROOT}/{name}", owner=id, upper=7, bytes=42, error=error)


class Storage(Buried):
    """The shards in the storage of instance `default`, two a page, and the API server's tombstones."""

    def __init__(self, *shards: ListedShard, deleting: Sequence[str] = (), failure: Exception | None = None) -> None:
        super().__init__(*deleting)
        self.shards, self.failure = shards, failure
        self.created: list[dict[str, Any]] = []

    async def create(self, _: object, namespace: str, body: dict[str, Any]) -> None:
        if isinstance(self.failure, ApiError):
            raise self.failure
        self.created.append(body)

    async def list_shards(self, location: str, after: str, without: Iterable[str]) -> ListShardsResponse:
        if isinstance(self.failure, Waiting):
            raise self.failure
        assert location == ROOT
        first, left_out = int(after or 0), set(without)
        page = [shard for shard in self.shards[first : first + 2] if shard.location not in left_out]
        return ListShardsResponse(shards=page, next=str(first + 2) if first + 2 < len(self.shards) else "")

    async def describe(self, wanted: Iterable[tuple[ShardId, str]]) -> Any:
        ((id, location),) = wanted
        found = next((shard for shard in self.shards if shard.location == location), None)
        upper, owner = Frontier.at(7), ShardId(found.owner) if found else None
        error = (found.error or None) if found else None
        shard = DescribedShard(id, found is not None, upper, upper, WriterTerm(1), error, owner)
        return None, cast(Any, type("Description", (), {"shards": (shard,)}))


def answer_of(
    storage: Storage,
    question: Callable[[RetainedTables, OperatorHarness], Awaitable[Any]],
    uid: str = "",
    name: str = "d",
) -> Any:
    """The answer, where Dataflow `name` exists and its table v2 is its own. `uid`: empty: it does not exist."""

    async def scenario() -> Any:
        harness = OperatorHarness()
        harness.put(READABLE, ONE)
        running = cast(RunningInstance, harness.context.running("ns", "default"))
        cast(Any, running).list_shards, cast(Any, running).describe = storage.list_shards, storage.describe
        if uid:
            state = dataflow(name, rev(name, 1, view=2))
            state.uid = uid
            harness.context.registry.put_dataflow(state)
            harness.cache.put(state.key, body("Dataflow", {}, name, uid=uid, resourceVersion="1"))
        deleter = TableDeleter(cast(Any, storage), harness.fleet, harness.context.registry, harness.cache)
        try:
            return await question(RetainedTables(harness.context, deleter), harness)
        finally:
            await harness.fleet.close()

    return asyncio.run(scenario())


def listing(storage: Storage, uid: str = "") -> RetainedTableList:
    found: RetainedTableList = answer_of(storage, lambda tables, _: tables.listing("ns"), uid)
    return found


def delete(storage: Storage, table: str, uid: str = "", instance: str = "") -> str:
    return str(answer_of(storage, lambda tables, _: tables.delete("ns", table, instance), uid))


def test_a_listing_has_the_maker_and_the_state_of_each_table() -> None:
    """The listing has every page; tables that objects have are left out."""
    own = dataflow("d", rev("d", 1, view=2)).active
    assert own is not None
    (view,) = [s.sink.shard for s in own.revision.description.sink_exports]  # type: ignore[union-attr]
    storage = Storage(
        ListedShard(location=view.location, owner="mine/d/v2"),
        listed("d/d/v1", "mine"),
        listed("s/__remap/v1", "was-source"),
        listed("s/t/v1", "was-source"),
        listed("s/v/v1", "was-view"),
        listed("torn/v/v1", error="no log"),
        listed("x/v/v1"),
        deleting=[f"{ROOT}/x/v/v1"],
    )

    found = listing(storage, "mine")

    assert [(t.name, t.part, t.version, t.kind, t.owner, t.state) for t in found.tables] == [
        ("d", "d", 1, "Dataflow", "mine", "replaced"),
        ("s", "__remap", 1, "DataSource", "was-source", "retained"),
        ("s", "t", 1, "DataSource", "was-source", "retained"),
        ("s", "v", 1, "Dataflow", "was-view", "retained"),
        ("torn", "v", 1, "", "", "unreadable"),
        ("x", "v", 1, "Dataflow", "gone", "deleting"),
    ]
    assert (found.more, found.unlisted) == (False, ())
    assert {(t.bytes, t.upper) for t in found.tables if not t.error} == {(42, Frontier.at(7))}


def test_the_relation_has_all_tables_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing in part would be a wrong answer; the command prints it with a warning."""
    storage = Storage(*(listed(f"n{n}/v/v1") for n in range(5)))

    async def read(tables: RetainedTables, harness: OperatorHarness) -> Any:
        return rows(harness.context, "ns", RETAINED_TABLES, {0: "n3"}, await tables.complete("ns"))

    (row,) = answer_of(storage, read).rows
    assert [value.value for value in row.values[:3]] == ["n3", "v", "1"]
    monkeypatch.setattr(module, "MAX_TABLES", 3)
    assert len(listing(storage).tables) == 3
    assert listing(storage).more
    with pytest.raises(QueryRefused, match="more than 3 tables"):
        answer_of(storage, read)
    lost = Storage(failure=Waiting("NoReplicaOnline", "waiting for a replica"))
    assert listing(lost).unlisted == ("default: waiting for a replica",)
    with pytest.raises(QueryNotReady, match="could not be listed: default"):
        answer_of(lost, read)


def test_a_deletion_is_stored_before_it_is_begun() -> None:
    """The deletion is a tombstone of its own, with the id that the table has; twice is once."""
    storage = Storage(listed("x/v/v1"))
    assert delete(storage, "x/v/v1") == f"{ROOT}/x/v/v1"
    assert delete(storage, "x/v/v1", instance="default") == f"{ROOT}/x/v/v1"
    first, second = storage.created
    assert first == second
    assert first["data"]["shards"] == [{"id": "gone/v/v1", "location": f"{ROOT}/x/v/v1"}]
    storage.failure = Conflict(409, "exists")
    assert delete(storage, "x/v/v1") == f"{ROOT}/x/v/v1"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("x", "x is no table"),
        ("../x/v1", "is no table"),
        ("x/v/v1/v2", "there is no table|is no table"),
        ("x/v/v3", "there is no table x/v/v3"),
        ("d/d/v1", "Dataflow d exists"),
    ],
)
def test_tables_that_may_not_be_deleted_are_refused(table: str, why: str) -> None:
    """Nothing is stored: also an older table of a name that exists stays, since the object may go back to it."""
    storage = Storage(listed("x/v/v1"), listed("d/d/v1", "mine"))
    with pytest.raises(QueryRefused, match=why):
        delete(storage, table, "mine")
    assert storage.created == []


def test_an_object_that_cannot_be_read_protects_its_tables_too() -> None:
    storage = Storage(listed("s/t/v1"))

    async def ask(tables: RetainedTables, harness: OperatorHarness) -> Any:
        key = Key(DATA_SOURCES, "ns", "s")
        harness.cache.put(key, body("DataSource", {"of": "tomorrow"}, "s", uid="u", resourceVersion="1"))
        return await tables.delete("ns", "s/t/v1")

    with pytest.raises(QueryRefused, match="DataSource s exists"):
        answer_of(storage, ask)


def test_a_deletion_that_cannot_be_decided_is_asked_again() -> None:
    with pytest.raises(QueryNotReady, match="no log"):
        delete(Storage(listed("x/v/v1", error="no log")), "x/v/v1")
    with pytest.raises(QueryNotReady, match="could not be stored: etcd is full; ask again"):
        delete(Storage(listed("x/v/v1"), failure=ApiError(500, "etcd is full")), "x/v/v1")
    ends = ApiError(403, "NamespaceTerminating")
    with pytest.raises(QueryNotReady, match="namespace ns is being deleted"):
        delete(Storage(listed("x/v/v1"), failure=ends), "x/v/v1")


def test_a_published_table_is_listed_and_deleted_by_its_view() -> None:
    """One that a Dataflow publishes is not listed; one that it published before may be deleted once it is gone."""
    storage = Storage(
        ListedShard(location=f"{ROOT}/_published/x/v1", owner="published//ns.x.v1", bytes=42),
        ListedShard(location=f"{ROOT}/_published/d/old", owner="published//ns.d.old", bytes=7),
        ListedShard(location=f"{ROOT}/_published/torn/v", error="no log"),
    )
    assert [(t.name, t.part, t.version, t.kind, t.state, t.bytes) for t in listing(storage, "mine").tables] == [
        ("d", "old", 0, "Dataflow", "replaced", 7),
        ("torn", "v", 0, "Dataflow", "unreadable", 0),
        ("x", "v1", 0, "Dataflow", "retained", 42),
    ]
    assert delete(storage, "x/v1/published", "mine", instance="default") == f"{ROOT}/_published/x/v1"
    (stored,) = storage.created
    assert stored["data"]["shards"] == [{"id": "published//ns.x.v1", "location": f"{ROOT}/_published/x/v1"}]
    for table, why in {"d/old/published": "Dataflow d exists", "x/v/published": "has left no published table"}.items():
        with pytest.raises(QueryRefused, match=why):
            delete(storage, table, "mine")
    with pytest.raises(QueryNotReady, match="cannot be read now"):
        delete(storage, "torn/v/published")
    assert len(storage.created) == 1


def test_tables_at_other_locations_are_listed_and_deleted_by_their_place() -> None:
    """A view may have left several of them, beside one in the storage."""
    at, other = "s3://lake/one", "s3://lake/two"
    storage = Storage(
        *(
            ListedShard(location=f"{ROOT}/_elsewhere/x/{location_hash(a)}", table=a, owner=removal_id("", "ns.x.v1", a))
            for a in (at, other)
        ),
        ListedShard(location=f"{ROOT}/_elsewhere/x/torn", error="no note"),
        ListedShard(location=f"{ROOT}/_published/x/v1", owner="published//ns.x.v1", bytes=42),
    )
    found = {(t.part, t.state): t.location for t in listing(storage, "mine").tables}
    assert found == {
        (f"v1@{location_hash(at)}", "retained"): at,
        (f"v1@{location_hash(other)}", "retained"): other,
        ("@torn", "unreadable"): f"{ROOT}/_elsewhere/x/torn",
        ("v1", "retained"): f"{ROOT}/_published/x/v1",
    }
    assert delete(storage, f"x/v1@{location_hash(other)}/published", "mine") == other
    (stored,) = storage.created
    assert stored["data"]["shards"] == [{"id": removal_id("", "ns.x.v1", other), "location": other}]
    assert removal_of(removal_id("", "ns.x.v1", other)) == ("", "ns.x.v1")


def test_the_published_table_of_a_dataflow_is_not_listed() -> None:
    """Nor may it be deleted."""
    storage = Storage(ListedShard(location=AT, owner="published//ns.d.v"))

    async def ask(tables: RetainedTables, harness: OperatorHarness) -> Any:
        state = dataflow("d", publishing(rev("d", 1, view=1)))
        state.uid = "mine"
        harness.context.registry.put_dataflow(state)
        assert (await tables.listing("ns")).tables == ()
        return await tables.delete("ns", "d/v/published")

    with pytest.raises(QueryRefused, match="has left no published table"):
        answer_of(storage, ask)
