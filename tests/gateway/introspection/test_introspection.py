"""Introspection relations: their rows go into plans, and lags into buckets."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.controller.harness import EMPTY, R1, at
from tests.gateway.server.test_metrics import fleet
from tests.protocol.samples import dataflow
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.controller.reports.task_time import TaskTime
from tidemark_operator.errors import QueryRefused
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.lag_histogram import BUCKETS, LagHistogram, bucket_of
from tidemark_operator.gateway.query.one_shot import check_plan_size, new_name, prepare
from tidemark_operator.gateway.query.read_time import TimeRequest
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection import relations as relations_module
from tidemark_operator.introspection.files import files
from tidemark_operator.introspection.inline_rows import RESULT, inline_rows
from tidemark_operator.introspection.relations import NO_FILTER, ColumnFilter, relations
from tidemark_operator.introspection.relations import rows as relation_rows
from tidemark_operator.introspection.top import top
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import CreateDataflow
from tidemark_protocol.messages.planning import Finishing, Planned, PlannedExport, PlannedOneShot, PlannedPeek
from tidemark_protocol.messages.responses import Failure, FailureKind, Frontiers, IngestionStatus, SourceFile, Status
from tidemark_protocol.plan.codec import MAX_PLAN_BYTES, decode, encode
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, IndexExport, SourceImport
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import Constant, ConstantRow, Get, OrderKey
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, Column, ColumnType
from tidemark_protocol.wire import protobuf

(FRONTIERS,) = (r for r in relations() if r.name == "frontiers")
WHOLE = tuple(ColumnType(c.type, c.nullable) for c in FRONTIERS.columns)
ROWS = Constant((ConstantRow(tuple(Literal(None, c.type) for c in WHOLE)),), WHOLE)


def rows(id: GlobalId, wanted: ColumnFilter) -> Constant | None:
    return ROWS if id == FRONTIERS.id else None


def description(planned: PlannedOneShot) -> DataflowDescription:
    """Checked, as a replica checks it."""
    (export,) = planned.planned.exports
    made = DataflowDescription(
        "query",
        planned.planned.source_imports,
        (),
        planned.planned.objects,
        (IndexExport(GlobalId("x"), export.on, export.key, export.columns),),
        (),
        Time(0),
    )
    check_dataflow(made)
    return made


def test_a_query_of_rows_makes_them_first_and_finishes_them() -> None:
    """A column that is only ordered by is held, and not shown."""
    mfp = MapFilterProject(WHOLE, projection=(0, 3))
    columns = (Column("name", WHOLE[0].type), Column("__order1", BIGINT))
    finishing = Finishing((OrderKey(1),), 5, 0, shown=1)
    made = inline_rows(PlannedPeek(FRONTIERS.id, mfp, finishing, columns), rows)

    assert isinstance(made, PlannedOneShot)
    assert [c.name for c in made.columns] == ["name"]
    assert made.finishing == finishing
    assert description(made).source_imports == ()


def test_a_query_with_operators_reads_rows_and_tables() -> None:
    """The import that is no table becomes an object of its name, with the columns that the plan reads."""
    assert FRONTIERS.shard is not None
    of_rows = SourceImport(FRONTIERS.id, FRONTIERS.shard, (0, 5))
    of_table = SourceImport(GlobalId("t"), FRONTIERS.shard, (1,))
    get = BuildDesc(RESULT, Get(FRONTIERS.id, (WHOLE[0], WHOLE[5])))
    export = PlannedExport("result", "index", RESULT, (Column("c0", WHOLE[0].type), Column("c1", BIGINT)), (0,))
    made = inline_rows(PlannedOneShot(Planned((of_rows, of_table), (get,), (export,), (), ""), Finishing(), ()), rows)

    assert isinstance(made, PlannedOneShot)
    assert description(made).source_imports == (of_table,)
    assert [o.id for o in made.planned.objects] == [FRONTIERS.id, RESULT]


def test_other_queries_stay_as_they_are() -> None:
    """A peek of an export."""
    peek = PlannedPeek(GlobalId("d/i"), MapFilterProject(WHOLE), Finishing(), FRONTIERS.columns)
    assert inline_rows(peek, rows) is peek


NAME, NUMBER = ColumnRef(0, STRING), ColumnRef(2, BIGINT)
REVENUE, ONE = Literal("revenue", STRING), Literal("1", BIGINT)


def equal(*arguments: ScalarExpr) -> ScalarExpr:
    return Call("=", arguments, BOOLEAN)


@pytest.mark.parametrize(
    ("predicates", "wanted"),
    [
        ((equal(NAME, REVENUE), equal(NUMBER, ONE)), {0: "revenue"}),
        ((equal(REVENUE, NAME),), {0: "revenue"}),
        ((Call("or", (equal(NAME, REVENUE), equal(NUMBER, ONE)), BOOLEAN),), {}),
        ((Call("<=>", (NAME, REVENUE), BOOLEAN), equal(NAME, Literal(None, STRING))), {}),
        ((equal(ColumnRef(len(WHOLE), STRING), REVENUE),), {}),
    ],
    ids=["and", "either side", "or", "not equality", "a column that is made"],
)
def test_rows_that_the_filter_leaves_out_are_not_made(predicates: tuple[ScalarExpr, ...], wanted: ColumnFilter) -> None:
    """The filter of a peek says which rows are made; the rows of a dataflow's import are made whole."""
    assert FRONTIERS.shard is not None
    asked: list[ColumnFilter] = []

    def rows(id: GlobalId, wanted: ColumnFilter) -> Constant | None:
        asked.append(wanted)
        return ROWS

    mfp = MapFilterProject(WHOLE, predicates=predicates)
    inline_rows(PlannedPeek(FRONTIERS.id, mfp, Finishing(), FRONTIERS.columns), rows)
    source = SourceImport(FRONTIERS.id, FRONTIERS.shard, (1, 0))
    inline_rows(PlannedOneShot(Planned((source,), (), (), (), ""), Finishing(), ()), rows)

    assert asked == [wanted, {}]


@pytest.mark.parametrize(
    ("lag_ms", "up_to"),
    [(0, 1), (1000, 1), (1001, 2), (2000, 2), (2001, 4), (4000, 4), (4001, 8), (10**12, 1 << (BUCKETS - 1))],
)
def test_a_lag_is_counted_below_the_next_power_of_two(lag_ms: int, up_to: int) -> None:
    """In seconds; the last bucket takes the rest."""
    assert 1 << bucket_of(lag_ms) == up_to


def test_lags_are_sampled_of_readable_collections_and_forgotten_with_them() -> None:
    """Neither of what is hydrating nor of what is finished; the total stays."""
    lags, a, b = LagHistogram(), GlobalId("a"), GlobalId("b")
    lags.sample([(a, at(9_500)), (b, None)], 10_000)
    lags.sample([(a, at(7_000)), (b, EMPTY)], 10_000)
    assert dict(lags.histograms()) == {a: {1: 1, 4: 1}, b: {}}
    lags.sample([(b, at(20_000))], 10_000)
    assert dict(lags.histograms()) == {b: {1: 1}}
    assert sum(lags.total) == 3
    assert lags.sum_seconds == pytest.approx(3.5)


def shown_rows(relation: str, fleet: Fleet, wanted: ColumnFilter = NO_FILTER) -> list[tuple[str | None, ...]]:
    """The rows of the relation, of an instance whose Dataflows nobody knows by name."""
    context = cast(ReconcileContext, SimpleNamespace(registry=Registry(), fleet=fleet))
    found = relation_rows(context, "ns", GlobalId(relation), wanted)
    assert found is not None
    return [tuple(value.value for value in row.values) for row in found.rows]


def test_operators_are_listed_once_while_they_hydrate_and_then_with_their_state() -> None:
    """The dataflow has two exports, which both report its progress."""
    made = fleet()
    instance = made.get("ns", "default")
    assert instance is not None
    index, view = dataflow("d").export_ids
    hydrating = {"state": "hydrating", "percent": "40", "operators": '[["read t", 100], ["join", 7]]'}
    (on,) = instance.core.dataflows.collections_of("ns/d")[0].replicas.values()
    on.output = None
    instance.received(R1, 1, [Status(id, "hydration", hydrating) for id in (index, view)])
    relation = "tidemark_introspection.operators"
    busy = [row[1:] for row in shown_rows(relation, made)]
    nothing = (None,) * 5
    assert busy == [
        ("r1", "1", "read t", *nothing, "100", "true"),
        ("r1", "2", "join", *nothing, "7", "false"),
    ]

    instance.received(R1, 1, [Frontiers(id, at(400), at(400), at(400)) for id in (index, view)])
    instance.received(R1, 1, [Status(index, "operators", {"operators": '[["join", "Join", 5, 2, 70, 9]]'})])
    assert [row[1:] for row in shown_rows(relation, made)] == [
        ("r1", "1", "join", "Join", "5", "2", "70", "9", "100", "true"),
    ]

    two = '[["read t", "Get", 0, 0, 0, 1], ["join", "Join", 5, 2, 70, 9]]'
    fields = {"operators": two, "channels": "[[0, 1], [1, 7]]"}
    instance.received(R1, 1, [Status(index, "operators", fields)])
    found = [row[1:] for row in shown_rows("tidemark_introspection.operator_channels", made)]
    assert found == [("r1", "1", "read t", "2", "join")]
    instance.received(R1, 1, [Status(index, "operators", {"operators": two, "channels": "[0]"})])
    assert shown_rows("tidemark_introspection.operator_channels", made) == []


@pytest.mark.parametrize("name", ["statuses", "operators", "steps", "replica_frontiers", "errors", "step_histogram"])
def test_statuses_of_other_dataflows_are_not_read_for_a_name(name: str) -> None:
    """A namespace may have thousands of Dataflows, and the event loop reads their statuses."""
    made = fleet()
    instance = made.get("ns", "default")
    assert instance is not None
    index, view = dataflow("d").export_ids
    instance.received(R1, 1, [Frontiers(id, at(400), at(400), at(400)) for id in (index, view)])
    given = {"steps": "3", "histogram": "[[1, 1]]", "operators": '[["join", "Join", 5, 2, 70, 9]]', "errors": "1"}
    instance.received(R1, 1, [Status(index, kind, given) for kind in ("steps", "operators", "erroring")])
    context = cast(ReconcileContext, SimpleNamespace(fleet=made, registry=Registry()))
    rows = list(relations_module.rows_of(context, "ns", name))
    assert rows
    wanted: ColumnFilter = {0: str(rows[0][0])}
    found = [row for row in relations_module.rows_of(context, "ns", name, wanted) if row[0] == wanted[0]]
    assert [row[:2] for row in found] == [row[:2] for row in rows if row[0] == wanted[0]]
    assert list(relations_module.rows_of(context, "ns", name, {0: "other"})) == []


def test_steps_have_buckets_and_hydrations_a_history() -> None:
    """A hydration that is lost with its connection has ended; one under way has no end."""
    made = fleet()
    instance = made.get("ns", "default")
    assert instance is not None
    index, view = dataflow("d").export_ids
    (under_way,) = shown_rows("tidemark_introspection.hydrations", made)
    assert (under_way[1:4], under_way[5:]) == (("default", "r1", "300"), (None, None))
    assert int(under_way[4] or 0) > 0
    instance.received(R1, 1, [Frontiers(id, at(400), at(400), at(400)) for id in (index, view)])
    instance.received(R1, 1, [Status(index, "steps", {"steps": "3", "histogram": "[[1, 1], [64, 2]]"})])
    found = [row[1:] for row in shown_rows("tidemark_introspection.step_histogram", made)]
    assert found == [("r1", "1", "1"), ("r1", "64", "2")]
    (ended,) = shown_rows("tidemark_introspection.hydrations", made)
    assert (ended[:5], ended[6]) == (under_way[:5], "hydrated")
    assert int(ended[5] or 0) >= int(ended[4] or 0)

    lost = fleet()
    place = lost.get("ns", "default")
    assert place is not None
    place.core.disconnect(R1)
    assert [row[6] for row in shown_rows("tidemark_introspection.hydrations", lost)] == ["lost"]


def test_top_has_what_a_dataflow_keeps_and_how_many_cores_its_tasks_take() -> None:
    """From two reports; where a third does not come, nothing runs. While it hydrates, only how far it is."""
    made = fleet()
    instance = made.get("ns", "default")
    assert instance is not None
    index, view = dataflow("d").export_ids
    (on,) = instance.core.dataflows.collections_of("ns/d")[0].replicas.values()
    on.output = None
    hydrating = {"state": "hydrating", "percent": "40", "operators": "[]"}
    instance.received(R1, 1, [Status(id, "hydration", hydrating) for id in (index, view)])
    context = cast(ReconcileContext, SimpleNamespace(fleet=made))
    (usage,) = top(context, "ns", False).dataflows
    assert (usage.replica, usage.hydrated, usage.hydrated_percent, usage.HasField("bytes")) == ("r1", False, 40, False)

    instance.received(R1, 1, [Frontiers(id, at(400), at(400), at(400)) for id in (index, view)])
    sizes = {"arrangements": "2", "records": "5", "batches": "2", "bytes": "70"}
    instance.received(R1, 1, [Status(index, "arrangements", sizes), Status(index, "steps", {"steps": "3"})])
    instance.received(R1, 1, [Status(index, "operators", {"operators": '[["join", "Join", 5, 2, 70, 9]]'})])
    (usage,) = top(context, "ns", True).dataflows
    found = (usage.namespace, usage.name, usage.instance, usage.bytes, usage.records, usage.steps, usage.elapsed_ms)
    assert found == ("ns", usage.name, "default", 70, 5, 3, 9)
    assert not usage.HasField("cores")
    assert list(top(context, "other", False).dataflows) == []

    first = TaskTime(10_000, 4_000)
    second = first.after(9_000, 20_000)
    assert (first.cores_at(11_000), second.cores_at(21_000), second.cores_at(60_000)) == (None, 0.5, 0.0)
    assert first.cores_at(60_000) == 0.0
    assert second.after(100, 30_000) == TaskTime(30_000, 100)


def test_imports_are_told_with_how_far_they_are_and_how_far_they_have_been_read() -> None:
    """One that nobody has heard of would be NULL."""
    made = fleet()
    (read,) = shown_rows("tidemark_introspection.imports", made)
    assert read[3:6] == ("table", "500", "false")
    assert int(read[6] or 0) > 0
    assert int(read[7] or 0) > 500


def test_more_rows_than_a_plan_may_hold_are_refused_unless_the_filter_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No replica would take the plan in: each would end its connection, and the next, for as long as somebody asks."""
    made = fleet()
    instance = made.get("ns", "default")
    assert instance is not None
    index, view = dataflow("d").export_ids
    instance.received(R1, 1, [Failure(id, FailureKind.SINK, "x" * 3000) for id in (index, view)])
    monkeypatch.setattr(relations_module, "MAX_BYTES", 4000)

    relation = "tidemark_introspection.statuses"
    with pytest.raises(QueryRefused, match=rf"{relation} has more rows than one query .* WHERE name = '...'"):
        shown_rows(relation, made)
    assert [row[0] for row in shown_rows(relation, made, {0: str(view)})] == [view]
    assert shown_rows(relation, made, {0: "nothing"}) == []


def nested(depth: int) -> ScalarExpr:
    return ONE if depth == 0 else Call("+", (nested(depth - 1), ONE), BIGINT)


def test_a_plan_that_a_replica_would_refuse_is_not_sent() -> None:
    """The planner did not see the rows, nor that a peek of them is a dataflow, in which it lies deeper."""
    instance = fleet().get("ns", "default")
    assert instance is not None

    def made(peek: PlannedPeek, rows: Constant) -> DataflowDescription:
        plan = inline_rows(peek, lambda id, wanted: rows)
        assert isinstance(plan, PlannedOneShot)
        return prepare(Registry(), instance, new_name(), plan, TimeRequest())[0].description

    peek = PlannedPeek(FRONTIERS.id, MapFilterProject(WHOLE), Finishing(), FRONTIERS.columns)
    check_plan_size(made(peek, ROWS))
    (row,) = ROWS.rows
    large = made(
        peek, replace(ROWS, rows=(replace(row, values=(Literal("x" * MAX_PLAN_BYTES, STRING), *row.values[1:])),))
    )
    with pytest.raises(QueryRefused, match="Filter by name"):
        check_plan_size(large)
    with pytest.raises(MalformedPlan, match="larger than the limit"):
        protobuf.command_from_proto(protobuf.command_to_proto(CreateDataflow(large)))

    deep = replace(peek, mfp=MapFilterProject(WHOLE, (nested(122),)))
    assert decode(encode(deep), PlannedPeek) == deep
    with pytest.raises(QueryRefused, match="cannot be computed: plan is nested deeper than"):
        made(deep, ROWS)


def test_the_reference_has_every_relation_with_its_columns() -> None:
    """In their order."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "introspection.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", page, re.MULTILINE)
    found = {name: re.sub(r" \([^)]*\)", "", columns) for name, columns in rows}

    assert found.keys() == {relation.name for relation in relations()}
    for relation in relations():
        words = re.findall(r"`(\w+)`", found[relation.name])
        assert words == [column.name for column in relation.columns]


def test_files_are_listed_as_their_ingester_reported_them() -> None:
    """The relation has the files of each source of the namespace; NULL where nothing is known."""
    registered, key = Registry(), Key(DATA_SOURCES, "ns", "drop")
    listed = (
        SourceFile("t", "2.csv", 8, "refused", "SCHEMA_MISMATCH", 1, 0, Time(5)),
        SourceFile("t", "1.csv", 9, "read"),
    )
    report = IngestionStatus(GlobalId("uid"), "running", files=listed)
    registered.put_source(SourceState(key, "uid", "default", report=report))
    context = cast(ReconcileContext, SimpleNamespace(registry=registered))
    of = relation_rows(context, "ns", GlobalId("tidemark_introspection.files"))

    assert of is not None
    assert [[v.value for v in row.values] for row in of.rows] == [
        ["drop", "t", "2.csv", "8", "0", "1", "refused", "SCHEMA_MISMATCH", "5"],
        ["drop", "t", "1.csv", "9", None, "0", "read", None, None],
    ]
    with pytest.raises(QueryRefused, match="there is no DataSource other"):
        files(context, "ns", "other")
    assert [f.file for f in files(context, "ns", "drop").files] == ["2.csv", "1.csv"]
