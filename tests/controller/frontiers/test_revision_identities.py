"""Plans on their way to replicas: identities, shards' versions, stored revisions, names."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.handlers.revised_dataflows import mark
from tests.protocol.samples import DATAFLOW, SHARD, A
from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.catalogue.relations import catalogue, parents
from tidemark_operator.errors import Rejected, RevisionUnreadable, Waiting
from tidemark_operator.handlers.revisions.as_of_selection import running_sinces
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.kube.revisions import RevisionOwner, build_revision, parse_revision, revision_name
from tidemark_operator.planning.assemble import Named, describe, with_as_of
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent, WrittenShard, export_ids
from tidemark_operator.planning.shards import (
    ShardLocations,
    free_version,
    next_term,
    unless_finished,
    version_of,
    view_shard,
)
from tidemark_operator.resources.manifest.meta import Meta, Namespace, Uid
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlannedTask
from tidemark_protocol.messages.responses import DescribedCollection, DescribedDataflow, DescribedShard, Description
from tidemark_protocol.plan.dataflow import ContinualTaskSink, MaterializedViewSink
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription, SourceTable, TpchSource
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.types import STRING, Column

META = Meta(Namespace("ns"), "revenue", Uid("0a1b2c3d-4e5f"), 1, "7", False, ())
NAMED = Named(META.name, META.uid)
OWNER = RevisionOwner(DATAFLOWS.api_version, DATAFLOWS.kind, META)
PLACE = ShardLocations.of("/data", "ns", "revenue", META.uid)
BUILT = DATAFLOW.objects[0].id
INDEX = PlannedExport("i", "index", BUILT, (A,), (0,), unique=True)
VIEW = PlannedExport("v", "materializedView", BUILT, (A,), (0,))
PLANNED = Planned(DATAFLOW.source_imports, DATAFLOW.objects, (VIEW, INDEX), (GlobalId("src/a"),), "explain")
SHARDS = {"v": PLACE.shard("v", 1, (A,))}


def revision(planned: Planned = PLANNED) -> DataflowRevision:
    description, identity = describe(NAMED, planned, SHARDS)
    reads = (Parent("DataSource", "src"),)
    return DataflowRevision(with_as_of(description, Time(9)), planned.exports, reads, identity, 3, "sha256:0")


def look_at(*existing: str) -> object:
    async def look(shards: Sequence[tuple[ShardId, str]]) -> list[DescribedShard]:
        zero = Frontier.minimum()
        return [DescribedShard(id, location in existing, zero, zero, WriterTerm(0)) for id, location in shards]

    return look


def test_the_same_plan_has_the_same_ids_and_another_has_others() -> None:
    """as_of and explanation are no part of it; the plan, the shard and the Dataflow are."""
    description, identity = describe(NAMED, PLANNED, SHARDS)
    again, same = describe(NAMED, replace(PLANNED, explain="other words"), SHARDS)
    moved, other = describe(NAMED, PLANNED, {"v": PLACE.shard("v", 2, (A,))})
    theirs, _ = describe(Named("revenue", "another-uid"), PLANNED, SHARDS)

    assert (again, same) == (description, identity)
    assert other != identity
    assert set(moved.export_ids).isdisjoint(description.export_ids)
    assert set(theirs.export_ids).isdisjoint(description.export_ids)
    assert with_as_of(description, Time(5)).export_ids == description.export_ids


def test_when_it_ends_and_is_refreshed_is_part_of_what_it_is() -> None:
    """Two revisions that differ in that alone have different ids; without either they are what they always were."""
    hourly = RefreshSchedule(every_ms=3_600_000)
    named = [
        *(NAMED, replace(NAMED, until=Time(9)), replace(NAMED, until=Time(10))),
        *(replace(NAMED, refresh=hourly), replace(NAMED, refresh=replace(hourly, aligned_to=Time(1)))),
    ]
    described = [describe(each, PLANNED, SHARDS) for each in named]

    assert len({identity for _, identity in described}) == len(named)
    assert len({id for description, _ in described for id in description.export_ids}) == 2 * len(named)
    assert described[0][1] == "1193a03f06d3120edd7c58556cb90c5871fb6b21639ae2e4ae068c2d286ca4d5"
    description, _ = describe(replace(NAMED, until=Time(9), refresh=hourly), PLANNED, SHARDS)
    assert (description.until, [e.sink for e in description.sink_exports]) == (
        9,
        [MaterializedViewSink(SHARDS["v"], hourly)],
    )


def test_exports_are_found_by_their_names() -> None:
    """Whatever their order in the plan."""
    description, _ = describe(NAMED, PLANNED, SHARDS)
    ids = export_ids(description, PLANNED.exports)

    assert ids == {"i": description.index_exports[0].id, "v": description.sink_exports[0].id}
    assert revision().view_shard("v") == SHARDS["v"]
    assert revision().view_shard("i") is None


def test_a_stored_revision_reads_back_as_it_was() -> None:
    """Under a name that depends on owner and number alone."""
    body = build_revision(OWNER, 4, revision())

    assert parse_revision(body, DataflowRevision) == revision()
    assert body["metadata"]["name"] == revision_name(META, 4) == "revenue-0a1b2c3d-r4"
    assert body["metadata"]["ownerReferences"][0]["uid"] == META.uid


def test_a_plan_that_does_not_fit_is_refused() -> None:
    """With its size and the limit: the API server takes a megabyte."""
    noise = random.Random(7)
    name = "".join(chr(noise.randrange(32, 0x10000 - 0x2800)) for _ in range(400_000))
    large = replace(PLANNED, exports=(replace(VIEW, columns=(Column(name, STRING),)), INDEX))

    with pytest.raises(Rejected, match="the limit is 921600") as refused:
        build_revision(OWNER, 1, revision(large))
    assert refused.value.reason == "PlanTooLarge"


@pytest.mark.parametrize("data", [{}, {"format": 2, "plan": ""}, {"format": 1, "plan": "?"}, {"format": 1}])
def test_a_revision_that_is_not_ours_is_unreadable(data: dict[str, object]) -> None:
    """And says which one."""
    with pytest.raises(RevisionUnreadable, match="revision x"):
        parse_revision({"metadata": {"name": "x"}, "data": data}, DataflowRevision)


@pytest.mark.parametrize(
    ("before", "columns", "existing", "version"),
    [
        pytest.param(None, (A,), [], 1, id="the first"),
        pytest.param(None, (A,), ["/data/ns/revenue/v/v1"], 2, id="a retained table is left alone"),
        pytest.param(1, (A,), ["/data/ns/revenue/v/v1"], 1, id="unchanged columns keep the shard"),
        pytest.param(1, (Column("b", STRING),), ["/data/ns/revenue/v/v1"], 2, id="changed columns get the next"),
        pytest.param(None, (A,), [f"/data/ns/revenue/v/v{n}" for n in range(1, 12)], 12, id="many retained ones"),
    ],
)
def test_versions_of_shards(before: int | None, columns: tuple[Column, ...], existing: list[str], version: int) -> None:
    """An address that exists is never taken, unless it is our own."""
    old = WrittenShard("materializedView", PLACE.shard("v", before, (A,))) if before else None
    export = replace(VIEW, columns=columns)

    shard = asyncio.run(view_shard(PLACE, export, old, look_at(*existing)))  # type: ignore[arg-type]

    assert (version_of(shard), shard.columns) == (version, columns)
    assert shard.location == f"/data/ns/revenue/v/v{version}"


@pytest.mark.parametrize(
    ("kind", "upper", "ended", "version"),
    [
        ("materializedView", Frontier.at(9), False, 1),
        ("materializedView", Frontier.empty(), False, 2),
        ("materializedView", Frontier.empty(), True, 2),
        ("continualTask", Frontier.at(9), True, 1),
        ("continualTask", Frontier.empty(), True, 1),
        ("continualTask", Frontier.empty(), False, 2),
    ],
)
def test_a_table_that_is_finished_is_not_written_by_another_plan(
    kind: str, upper: Frontier, ended: bool, version: int
) -> None:
    """A view of constants is complete for all times, and would show the old contents for ever. The rows of a task stay,
    unless the other plan goes on, where that one would never write."""
    there = PLACE.shard("v", 1, (A,))

    async def look(shards: Sequence[tuple[ShardId, str]]) -> list[DescribedShard]:
        return [DescribedShard(id, at == there.location, upper, Frontier.at(0), WriterTerm(1)) for id, at in shards]

    shard = asyncio.run(unless_finished(PLACE, replace(VIEW, kind=kind), there, look, lambda: ended))
    assert version_of(shard) == version


def test_a_task_does_not_go_on_with_a_views_table() -> None:
    """The rows of a view are no output of a task, though the columns are the same."""
    view = WrittenShard("materializedView", PLACE.shard("v", 1, (A,)))
    task = replace(VIEW, kind="continualTask", task=PlannedTask(GlobalId("src/a")))

    shard = asyncio.run(view_shard(PLACE, task, view, look_at(view.shard.location)))  # type: ignore[arg-type]
    again = asyncio.run(view_shard(PLACE, task, WrittenShard(task.kind, shard), look_at(shard.location)))  # type: ignore[arg-type]

    assert (version_of(shard), again) == (2, shard)


def test_a_task_is_described_with_what_it_watches_and_its_own_table() -> None:
    """And the table is part of the plan's identity."""
    planned = replace(
        PLANNED, exports=(replace(VIEW, kind="continualTask", task=PlannedTask(GlobalId("s1/a"), GlobalId("own"))),)
    )
    description, _ = describe(NAMED, planned, SHARDS)
    (sink,) = description.sink_exports

    assert sink.sink == ContinualTaskSink(SHARDS["v"], GlobalId("s1/a"), GlobalId("own"))
    check_dataflow(description)


def test_an_unreadable_place_is_not_taken_for_a_free_one() -> None:
    """It is waited for."""

    async def look(shards: Sequence[tuple[ShardId, str]]) -> list[DescribedShard]:
        zero = Frontier.minimum()
        return [DescribedShard(id, False, zero, zero, WriterTerm(0), "permission denied") for id, _ in shards]

    with pytest.raises(Waiting, match="permission denied"):
        asyncio.run(free_version(PLACE, ["v"], 1, look))


def test_terms_grow() -> None:
    """Above every one that was seen."""
    assert (next_term(), next_term(0), next_term(3, 7)) == (1, 1, 8)


def source_state(name: str, uid: str) -> SourceState:
    table = IngestedTable(GlobalId(f"{uid}/a"), SourceTable("a", (A,), keys=((0,),)), SHARD)
    pinned = IngestionDescription(GlobalId(uid), name, TpchSource("1", 1, 1), 1000, ShardId("r"), "/data/r", (table,))
    return SourceState(Key(DATA_SOURCES, "ns", name), uid, "default", pinned)


def dataflow_state(name: str, planned: Planned) -> DataflowState:
    state = DataflowState(Key(DATAFLOWS, "ns", name), META.uid, "default")
    return mark(state, active=ActiveRevision(f"{name}-r1", 1, 1, "sha256:0", revision(planned)))


def test_names_of_a_namespace() -> None:
    """Tables by source, exports by Dataflow; the short name only where there is one export; not one's own."""
    both, one = dataflow_state("both", PLANNED), dataflow_state("one", replace(PLANNED, exports=(VIEW,)))
    sources = [source_state("src", "s"), SourceState(Key(DATA_SOURCES, "ns", "new"), "n", "default")]

    names = {(r.parent, r.name): r for r in catalogue(sources, [both, one]).relations}

    assert set(names) == {("src", "a"), ("both", "i"), ("both", "v"), ("one", "v")}
    assert names["one", "v"].short
    assert not names["both", "v"].short
    assert names["both", "v"].shard == SHARDS["v"]
    assert names["both", "i"].shard is None
    assert (names["both", "i"].keys, names["both", "i"].index_key) == (((0,),), (0,))
    assert {r.parent for r in catalogue(sources, [both, one], without="one").relations} == {"src", "both"}


def test_a_view_is_known_by_its_shard_whichever_plan_writes_it() -> None:
    """Readers are not planned anew when it is."""
    before = dataflow_state("d", replace(PLANNED, exports=(VIEW,)))
    after = dataflow_state("d", replace(PLANNED, exports=(VIEW, INDEX)))

    ids = [next(r.id for r in catalogue([], [d]).relations if r.name == "v") for d in (before, after)]

    assert ids[0] == ids[1]


def test_a_table_of_a_dataflow_does_not_only_grow_whatever_its_plan_says() -> None:
    """The plan before it may have left rows that this one takes away; an index is of one plan alone."""
    growing = (replace(VIEW, monotonic=True), replace(INDEX, monotonic=True))
    state = dataflow_state("d", replace(PLANNED, exports=growing))

    assert {r.name: r.monotonic for r in catalogue([], [state]).relations} == {"v": False, "i": True}


def test_a_table_of_a_dataflow_has_no_unique_key_whatever_its_plan_says() -> None:
    """Readers stay as they are when an edit takes the key away; and where it brings one, the rows before it are there
    at times that can still be read."""
    unique = (replace(VIEW, unique=True), INDEX)
    state = dataflow_state("d", replace(PLANNED, exports=unique))

    assert {r.name: r.keys for r in catalogue([], [state]).relations} == {"v": (), "i": ((0,),)}


def test_users_are_those_whose_active_plan_reads_the_object() -> None:
    """In order of name; another namespace does not count."""
    registry = Registry()
    registry.put_source(source_state("src", "s"))
    for name in ("z", "a"):
        registry.put_dataflow(dataflow_state(name, PLANNED))
    unplanned = registry.put_dataflow(DataflowState(Key(DATAFLOWS, "ns", "unplanned"), "u", "default"))

    assert [k.name for k in registry.users(Key(DATA_SOURCES, "ns", "src"))] == ["a", "z"]
    assert registry.users(Key(DATA_SOURCES, "other", "src")) == []
    unplanned.planning.reads = (Parent("DataSource", "src"),)
    assert [k.name for k in registry.users(Key(DATA_SOURCES, "ns", "src"))] == ["a", "unplanned", "z"]
    assert parents(registry.sources("ns"), registry.dataflows("ns"), [GlobalId("s/a")]) == (
        Parent("DataSource", "src"),
    )


def test_users_follow_what_dataflows_come_to_read_and_read_no_more() -> None:
    """An edit, a Dataflow that goes, and another one of its name."""
    registry, source = Registry(), Key(DATA_SOURCES, "ns", "src")
    a, z = (registry.put_dataflow(dataflow_state(name, PLANNED)) for name in ("a", "z"))
    assert [k.name for k in registry.users(source)] == ["a", "z"]

    mark(a, active=None)
    assert [k.name for k in registry.users(source)] == ["z"]
    mark(a, active=z.active)
    assert [k.name for k in registry.users(source)] == ["a", "z"]
    registry.forget(z.key)
    registry.put_dataflow(DataflowState(a.key, "another", "default"))
    assert registry.users(source) == []


def test_a_replica_that_has_this_very_dataflow_says_where_it_is() -> None:
    """Another plan under the same ids would not count, nor does a dropped export."""
    description = revision().description
    zero = Frontier.minimum()
    collections = tuple(DescribedCollection(id, Frontier.at(40), zero) for id in description.export_ids)
    running = DescribedDataflow(description.export_ids, description.plan_digest, Time(9))
    has = Description("i", None, 1, (running,), collections, ())
    other = replace(has, dataflows=(replace(running, digest="0"),))

    assert running_sinces(description, [has, other]) == [Frontier.at(40)]
    assert running_sinces(description, [other]) == []
