"""Dataflows that import an index of another one: the order of commands, and the times that stay readable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, LAG, R1, R2, TERM, VIEW, InstanceHarness, at
from tests.handlers.revised_dataflows import mark
from tests.protocol.samples import ROW, A, dataflow
from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.handlers.revisions.installer import exporters_first
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import PlannedExport, SharedIndex
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, IndexExport, IndexImport
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import Get
from tidemark_protocol.types import BIGINT

READ = GlobalId("b/i")


def reader(name: str = "b", of: GlobalId = INDEX, as_of: int = 400) -> DataflowDescription:
    """An index `<name>/i` of the imported index `of`."""
    built = GlobalId(f"{name}/o")
    return DataflowDescription(
        name=name,
        source_imports=(),
        index_imports=(IndexImport(of, GlobalId("d/o"), (ColumnRef(0, BIGINT),), ROW),),
        objects=(BuildDesc(built, Get(of, ROW)),),
        index_exports=(IndexExport(GlobalId(f"{name}/i"), built, (0,), (A,)),),
        sink_exports=(),
        as_of=Time(as_of),
    )


def shared() -> InstanceHarness:
    """The exporter hydrated on R1 and complete below 450, the importer installed."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1)
    harness.report(R1, at(450))
    harness.maintain()
    harness.instance.create(Dataflow("ns/b", reader(), LAG), TERM)
    return harness


def since(harness: InstanceHarness, id: GlobalId = INDEX) -> int:
    found = harness.instance.dataflows.collection(id)
    assert found is not None
    return found.since.encode()


def test_an_index_is_held_for_its_importer_and_its_shards_for_the_index() -> None:
    """Compaction follows the importer's frontier, one level after the other; when it is gone, the read policy alone."""
    harness = shared()
    harness.report(R1, at(800))
    for _ in range(2):
        harness.maintain()
    shard = harness.shards.get(harness.instance.dataflows.collections_of("ns/d")[0].inputs[0])
    assert shard is not None
    assert since(harness) == 400
    assert shard.allowed_since(harness.now) == at(400)

    harness.report(R1, at(700), READ)
    for _ in range(2):
        harness.maintain()
    assert since(harness) == 700 - LAG

    harness.instance.drop("ns/b")
    harness.report(R1, EMPTY, READ)
    harness.maintain()
    assert since(harness) == 800 - LAG


def test_an_importer_that_is_slow_on_one_replica_holds_the_index() -> None:
    """The updates that it has not read there yet stay, also for the case that this replica starts again."""
    harness = shared()
    harness.connect(R2)
    harness.report(R1, at(900))
    harness.report(R1, at(850), READ)
    harness.report(R2, at(500), INDEX, VIEW, READ)
    harness.maintain()
    harness.maintain()

    assert since(harness) == 499


def test_an_importer_is_scheduled_once_the_index_is_past_its_as_of() -> None:
    """The importer says until then that it waits for the index."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1)
    harness.instance.create(Dataflow("ns/b", reader(as_of=400), LAG), TERM)
    waiting = harness.instance.dataflows.get("ns/b")
    assert waiting is not None
    harness.report(R1, at(400))
    harness.maintain()
    assert harness.instance.dataflows.waits_for(waiting) == [INDEX]
    assert c.Schedule(READ) not in harness.sent(R1)

    harness.report(R1, at(401))
    harness.maintain()

    assert c.Schedule(READ) in harness.sent(R1)


def test_a_new_replica_hears_of_the_exporter_first_and_can_read_it_at_the_importers_as_of() -> None:
    """In order of creation, its as_of not after the importer's; who imports is scheduled once the index is there."""
    harness = shared()
    harness.report(R1, at(800))
    harness.report(R1, at(600), READ)
    for _ in range(2):
        harness.maintain()
    harness.connect(R2)
    sent = harness.sent(R2)

    created = {m.dataflow.name: m.dataflow.as_of for m in sent if isinstance(m, c.CreateDataflow)}
    assert list(created) == ["d", "b"]
    assert created["d"] <= created["b"] == 600 - LAG
    assert c.Schedule(READ) not in sent

    harness.report(R2, at(800))
    harness.maintain()

    assert c.Schedule(READ) in harness.sent(R2)


def test_nothing_is_created_over_an_index_that_is_not_there() -> None:
    """Not installed, or dropped: the caller waits instead."""
    harness = InstanceHarness()
    with pytest.raises(ValueError, match="imports index d/i"):
        harness.instance.create(Dataflow("ns/b", reader(), LAG), TERM)
    harness.install()
    harness.connect(R1)
    harness.instance.drop("ns/d")
    with pytest.raises(ValueError, match="imports index d/i"):
        harness.instance.create(Dataflow("ns/b", reader(), LAG), TERM)


def state(name: str, *reads: str, instance: str = "default") -> DataflowState:
    """An active Dataflow that exports an index and a view of one collection, and reads others."""
    exports = (
        PlannedExport("v", "materializedView", GlobalId(f"{name}/o"), (A,), (0,)),
        PlannedExport("i", "index", GlobalId(f"{name}/o"), (A,), (0,), unique=True),
        PlannedExport("other", "index", GlobalId(f"{name}/p"), (A,), (0,)),
    )
    of = dataflow(name)
    own = replace(of.index_exports[0], id=GlobalId(f"{name}/other"), on=GlobalId(f"{name}/p"))
    description = replace(of, index_exports=(*of.index_exports, own))
    parents = tuple(Parent("Dataflow", r) for r in reads)
    revision = DataflowRevision(description, exports, parents, "identity", 1, "sha256:0")
    key = Key(DATAFLOWS, "ns", name)
    return DataflowState(
        key, f"uid-{name}", instance, revisions=RevisionSet(ActiveRevision("r1", 1, 1, "sha256:0", revision))
    )


def test_exporters_are_installed_before_their_importers() -> None:
    """However deep, and whatever their names."""
    descriptions = {"a": reader("a", GlobalId("m/i")), "m": reader("m", INDEX), "d": dataflow("d"), "k": reader("k")}
    states = [state(name) for name in descriptions]
    for s in states:
        assert s.active is not None
        revision = replace(s.active.revision, description=descriptions[s.key.name])
        mark(s, active=replace(s.active, revision=revision))
    order = [s.key.name for s, _ in exporters_first([(s, s.active) for s in states if s.active])]

    assert order.index("d") < order.index("m") < order.index("a")
    assert order.index("d") < order.index("k")
    assert sorted(order) == ["a", "d", "k", "m"]


def test_indexes_are_shared_within_their_instance() -> None:
    """A view's relation has the indexes of its own collection, an index's has itself; another instance's have none."""
    near, far = state("near"), state("far", instance="other")
    found = {f"{r.parent}.{r.name}": r for r in catalogue([], [near, far], instance="default").relations}
    index = SharedIndex(GlobalId("near/i"), GlobalId("near/o"), (0,))

    assert found["near.i"].indexes == found["near.v"].indexes == (index,)
    assert [i.id for i in found["near.other"].indexes] == ["near/other"]
    assert {found[f"far.{e}"].indexes for e in ("v", "i", "other")} == {()}
    assert found["far.i"].index_key == (0,)
