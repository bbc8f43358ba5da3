"""A Dataflow that waits for its installation: its inputs keep their since."""

from __future__ import annotations

from dataclasses import replace

from tests.controller.harness import EMPTY, INDEX, INPUT, NOW, R1, VIEW, InstanceHarness, at
from tests.handlers.revised_dataflows import dataflow as state
from tests.model.operator import Running
from tests.protocol.samples import ROW, dataflow
from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.handlers.revisions.installer import install
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import IndexImport, MaterializedViewSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink

REPORT = GlobalId("report/v")


class Exporting(InstanceHarness):
    """An index on a replica, and a report over it and the table below."""

    def __init__(self) -> None:
        super().__init__()
        self.install()
        self.connect(R1)
        self.running = Running(self.instance, lambda _: None)
        self.one = _importing()
        self.report(R1, at(450))

    def reconcile(self) -> Obstacle | None:
        return install(self.running, Registry(), self.one)  # type: ignore[arg-type]

    @property
    def table_since(self) -> Frontier | None:
        """The since of the table by now."""
        shard = self.shards.get(INPUT)
        assert shard is not None
        return shard.allowed_since(NOW)


def _importing() -> DataflowState:
    imported = IndexImport(INDEX, INDEX, (), ROW)
    description = replace(dataflow("report", 300), index_imports=(imported,), index_exports=())
    revision = DataflowRevision(description, (), (), Digest("1"), 1, "spec 1")
    return state("report", ActiveRevision("report-r1", 1, 1, "spec 1", revision))


def test_a_dataflow_that_waits_for_an_index_holds_its_tables() -> None:
    """The exporter is suspended. When it is back the report goes on where its table ends, and leaves out nothing."""
    harness = Exporting()
    harness.reconcile()
    harness.report(R1, at(450), REPORT)
    harness.maintain()
    kept = harness.table_since

    harness.instance.drop("ns/d")
    assert harness.reconcile() == Obstacle("waits until all replicas are done with the same revision from before")
    harness.report(R1, EMPTY, REPORT, INDEX, VIEW)
    harness.shards.observe(INPUT, at(5000), at(0))
    harness.maintain()
    assert harness.instance.dataflows.owners() == []
    assert kept is not None
    assert harness.table_since is not None
    assert harness.table_since <= kept

    harness.install()
    harness.reconcile()
    harness.report(R1, at(4900))
    harness.report(R1, at(4900), REPORT)
    harness.maintain()
    harness.maintain()
    assert harness.table_since > kept


def test_the_obstacle_of_an_edit_is_cleared_at_its_installation() -> None:
    """Nothing can be read of its inputs before its end; then a replica finds that its table is complete."""
    harness = InstanceHarness(upper=900, since=800)
    running, table = Running(harness.instance, lambda _: None), ShardId("report/v")
    edited = replace(dataflow("report", 300), index_exports=(), until=Time(400))
    serves, coming = (
        ActiveRevision(
            f"report-r{n}", n, 1, f"spec {n}", DataflowRevision(each, (), (), Digest(f"{n}"), n, f"spec {n}")
        )
        for n, each in enumerate((replace(dataflow("d", 300), sink_exports=()), edited), 1)
    )
    one = state("report", serves, coming)
    harness.shards.register(table, "file:///data/report", one.spec.lag_ms)
    harness.shards.observe(table, at(350), at(0))
    install(running, Registry(), one)  # type: ignore[arg-type]
    refused = one.installing(coming)
    assert refused is not None
    assert refused.failed
    assert "spec.until is 400" in refused.message

    found = DescribedShard(table, True, EMPTY, at(0), WriterTerm(2))
    harness.shards.record_end_term(found)
    harness.shards.described(found)
    install(running, Registry(), one)  # type: ignore[arg-type]
    assert harness.instance.dataflows.get(one.installation(coming)) is not None
    assert one.installing(coming) is None


def test_replicas_are_not_sent_a_sink_whose_address_is_not_allowed() -> None:
    """The view is installed all the same, and with the sink once the operator allows the address."""
    sink = PostgresSink("db.shop.svc", 5432, "shop", "db", "public", "kept", ("n",), "ns.report.v")
    for patterns, sent in (([], None), (["db.shop.svc:5432"], sink)):
        harness, registry = Exporting(), Registry()
        registry.allowed_hosts = AllowedHosts.parse(patterns)
        (mark,) = harness.one.marks
        exports = tuple(
            replace(export, sink=replace(export.sink, postgres=sink))
            for export in mark.revision.description.sink_exports
            if isinstance(export.sink, MaterializedViewSink)
        )
        assert exports
        description = replace(mark.revision.description, sink_exports=exports)
        harness.one = state("report", replace(mark, revision=replace(mark.revision, description=description)))
        assert install(harness.running, registry, harness.one) is None  # type: ignore[arg-type]
        installed = harness.instance.dataflows.get(harness.one.installation(harness.one.marks[0]))
        assert installed is not None
        (export,) = installed.description.sink_exports
        assert isinstance(export.sink, MaterializedViewSink)
        assert export.sink.postgres == sent
