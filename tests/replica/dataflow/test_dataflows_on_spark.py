"""Dataflows in a real replica process, on Spark, over real shards, driven by a scripted client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.directory_listing import matching
from tests.replica.conversations import furthest, reaches, started, unique
from tests.replica.peek.test_peeks_on_spark import answer, peek_of
from tests.replica.plans import SCHEMA, copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, wait_until
from tests.replica.tables import Table, persisted
from tidemark_operator.controller.reports.operator_costs import OperatorCost, operator_costs
from tidemark_persist import open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import AllowCompaction, AllowWrites, CreateDataflow, IndexTarget, Schedule
from tidemark_protocol.messages.responses import Failure, Frontiers, Response, Status
from tidemark_protocol.plan.expr import Call, Literal
from tidemark_protocol.plan.lir import MapFilterProject, Mfp
from tidemark_protocol.types import STRING

pytestmark = pytest.mark.spark

EMPTY = Frontier.empty()


def test_views_follow_their_input(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """An index and a materialized view hydrate at the as_of, then follow each tick; every time is in the shard."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 2), ((2, None), 5, 1), ((1, "a"), 7, -1))
    dataflow = copies(unique("d"), 6, source=table.metadata, index=unique("i"), view=view)
    client = connect(*started(dataflow))
    index_id, view_id = dataflow.export_ids
    client.wait_for(reaches("output", index_id, 10))
    client.wait_for(reaches("write", view_id, 10))
    table.append(20, ((2, None), 12, -1), ((3, "c"), 12, 1), ((3, "c"), 14, -1))
    client.wait_for(reaches("write", view_id, 20))

    state = open_shard(view.location).state()
    assert (state.since, state.upper, state.term) == (6, 20, 1)
    for time in range(6, 20):
        assert persisted(view.location, time) == table.at(time)
    assert client.wait_for(reaches("input", index_id, 20))
    assert [d.export_ids for d in client.describe().dataflows] == [dataflow.export_ids]


def test_state_and_time_of_each_operator_are_reported(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """The report comes as soon as there was a step, whoever ran it; a new client is told again."""
    table = Table(tmp_path, "t")
    table.append(10, *(((n, "a"), 3, 1) for n in range(1000)))
    dataflow = copies(unique("d"), 6, source=table.metadata, index=unique("i"))
    (index,) = dataflow.export_ids
    for _ in range(2):
        client = connect(*started(dataflow))
        client.wait_for(lambda responses: [o for o in _costs_of(index, responses) if o.records == 1000])
        read, kept = _costs_of(index, client.responses)
        assert (read.kind, read.records, kept.kind, kept.records) == ("Get", 0, "ArrangeBy", 1000)
        assert kept.name.startswith("index ")
        assert kept.bytes > 0


def test_two_indexes_by_one_key_are_kept_once(connect: Callable[..., ScriptedClient], tmp_path: Path) -> None:
    """Introspection counts them once. The one that stays keeps its times, and does not keep those of the other."""
    table = Table(tmp_path, "t")
    table.append(10, ((1, "a"), 3, 1), ((2, "b"), 7, 1))
    one = copies(unique("d"), 6, source=table.metadata, index=unique("i"))
    dataflow = replace(one, index_exports=(*one.index_exports, replace(one.index_exports[0], id=GlobalId(unique("j")))))
    first, second = dataflow.export_ids
    client = connect(*started(dataflow))
    client.wait_for(lambda responses: [o for o in _costs_of(first, responses) if o.records == 2])
    kept = [r.fields for r in client.responses if isinstance(r, Status) and (r.id, r.kind) == (first, "arrangements")]
    assert (kept[-1]["arrangements"], kept[-1]["records"]) == ("1", "2")
    client.send(AllowCompaction(second, Frontier.at(9)))
    assert answer(client, peek_of(IndexTarget(first), 6)) == [(1, "a")]
    client.send(AllowCompaction(first, EMPTY))
    table.append(20, ((1, "a"), 12, -1))
    client.wait_for(reaches("output", second, 20))
    for time in (9, 19):
        assert Counter(answer(client, peek_of(IndexTarget(second), time))) == table.at(time)
    client.send(AllowCompaction(second, Frontier.at(19)))
    assert answer(client, peek_of(IndexTarget(second), 19)) == [(2, "b")]
    assert "can be read from" in str(answer(client, peek_of(IndexTarget(second), 18)))


def _costs_of(id: GlobalId, responses: Iterable[Response]) -> tuple[OperatorCost, ...]:
    """The operators, as the replica said it last and as an operator of ours hears it."""
    statuses = [r.fields for r in responses if isinstance(r, Status) and (r.id, r.kind) == (id, "operators")]
    return operator_costs(statuses[-1]) if statuses else ()


def test_reconnect_reuses_equal_dataflows(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """The same process, no hydration more, and the new client hears every frontier from its own as_of on."""
    table = Table(tmp_path, "t")
    table.append(10, ((1, "a"), 3, 1))
    kept = copies(unique("kept"), 6, source=table.metadata, index=unique("i"))
    gone = copies(unique("gone"), 6, source=table.metadata, index=unique("i"))
    first = connect(*started(kept, gone))
    for dataflow in (kept, gone):
        first.wait_for(reaches("output", dataflow.export_ids[0], 10))
    before = first.describe()
    table.append(20, ((1, "a"), 11, 1))
    first.wait_for(reaches("output", kept.export_ids[0], 20))
    second = connect(*started(replace(kept, as_of=Time(15))))
    second.wait_for(reaches("output", kept.export_ids[0], 20))
    after = second.describe()

    assert (after.incarnation, after.hydrations) == (before.incarnation, before.hydrations)
    assert [(d.export_ids, d.as_of) for d in after.dataflows] == [(kept.export_ids, 15)]
    assert {r.id for r in second.responses if isinstance(r, Frontiers)} == {kept.export_ids[0]}
    table.append(30)
    second.wait_for(reaches("output", kept.export_ids[0], 30))


def test_must_go_on_writing_for_a_client_that_allows_nothing(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """The permission of the client before it was for good: under its term, the same process, in the shard."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 1))
    dataflow = copies(unique("d"), 6, source=table.metadata, view=view)
    (id,) = dataflow.export_ids
    first = connect(CreateDataflow(dataflow), Schedule(id), AllowWrites(id, WriterTerm(7)))
    first.wait_for(reaches("write", id, 10))
    before = first.describe()

    second = connect(CreateDataflow(replace(dataflow, as_of=Time(9))), Schedule(id))
    table.append(20, ((2, "b"), 12, 1))
    second.wait_for(reaches("write", id, 20))
    after = second.describe()

    assert (after.incarnation, after.hydrations) == (before.incarnation, before.hydrations)
    assert (open_shard(view.location).state().term, persisted(view.location, 19)) == (7, table.at(19))


def test_a_replica_goes_on_without_a_client(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """The one who asked is gone; ticks are still processed and written, as Describe tells."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 1))
    dataflow = copies(unique("d"), 6, source=table.metadata, view=view)
    client = connect(*started(dataflow))
    client.wait_for(reaches("write", dataflow.export_ids[0], 10))
    client.cancel()
    client.wait_end()
    table.append(20, ((2, "b"), 12, 1))
    wait_until(lambda: [c.write for c in client.describe().collections] == [Frontier.at(20)])

    assert persisted(view.location, 19) == table.at(19)


def test_a_dropped_dataflow_frees_its_files(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """Empty frontiers at once, arrangements gone from scratch soon, the shard of a view stays."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 1))
    dataflow = copies(unique("d"), 6, source=table.metadata, index=unique("i"), view=view)
    client = connect(*started(dataflow))
    for id in dataflow.export_ids:
        client.wait_for(reaches("write", id, 10))
    assert arrangement_files(spark_replica)
    client.send(*(AllowCompaction(id, EMPTY) for id in dataflow.export_ids))
    for id in dataflow.export_ids:
        client.wait_for(
            lambda responses, id=id: all(furthest(k, id)(responses) == EMPTY for k in ("write", "input", "output"))
        )
    wait_until(lambda: not arrangement_files(spark_replica))

    assert persisted(view.location, 9) == table.at(9)
    assert client.describe().dataflows == ()


def test_a_dataflow_dropped_while_it_is_rendered_frees_its_files(
    spark_replica: ReplicaProcess, connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """Its plans were ready only after nobody wanted them any more."""
    table = Table(tmp_path, "t")
    table.append(10, ((1, "a"), 3, 1))
    client = connect(*started())
    for _ in range(5):
        gone = copies(unique("gone"), 6, source=table.metadata, index=unique("i"))
        client.send(CreateDataflow(gone), *(Schedule(id) for id in gone.export_ids))
        wait_until(lambda: len(dataflow_folders(spark_replica)) == 1)
        client.send(*(AllowCompaction(id, EMPTY) for id in gone.export_ids))
        wait_until(lambda: not dataflow_folders(spark_replica))


def test_an_importer_follows_the_index_it_reads(connect: Callable[..., ScriptedClient], tmp_path: Path) -> None:
    """Also after the controller let go of the index: it lives until its reader is dropped."""
    table, view = Table(tmp_path, "t"), shard("v", str(tmp_path))
    table.append(10, ((1, "a"), 3, 1))
    index = unique("i")
    middle = copies(unique("m"), 6, source=table.metadata, index=index)
    reader = copies(unique("r"), 8, imports_index=index, view=view)
    client = connect(*started(middle, reader))
    client.wait_for(reaches("write", reader.export_ids[0], 10))
    client.send(AllowCompaction(GlobalId(index), EMPTY))
    client.wait_for(lambda responses: furthest("write", index)(responses) == EMPTY)
    table.append(20, ((1, "a"), 12, -1), ((2, "b"), 15, 1))
    client.wait_for(reaches("write", reader.export_ids[0], 20))

    for time in range(8, 20):
        assert persisted(view.location, time) == table.at(time)


def test_a_view_waits_for_a_source_that_does_not_exist_yet(
    connect: Callable[..., ScriptedClient], tmp_path: Path
) -> None:
    """No failure and no busy loop: it hydrates when the shard is there and complete past the as_of."""
    dataflow = copies(unique("d"), 5, source=shard("t", str(tmp_path)), index=unique("i"))
    client = connect(*started(dataflow))
    client.wait_for(reaches("output", dataflow.export_ids[0], 5))
    table = Table(tmp_path, "t")
    table.append(5, ((1, "a"), 3, 1))
    table.append(9)
    client.wait_for(reaches("output", dataflow.export_ids[0], 9))


def test_a_plan_that_is_not_allowed_harms_no_other(connect: Callable[..., ScriptedClient], tmp_path: Path) -> None:
    """The replica checks plans itself: a bad one is refused by name, the good one beside it runs."""
    table = Table(tmp_path, "t")
    table.append(10)
    good = copies(unique("good"), 6, source=table.metadata, index=unique("i"))
    bad = copies(unique("bad"), 6, source=table.metadata, index=unique("i"))
    reflect = Call("reflect", (Literal("java.lang.System", STRING),), STRING)
    mfp = MapFilterProject(SCHEMA, expressions=(reflect,), projection=(0, 2))
    bad = replace(bad, objects=(replace(bad.objects[0], plan=Mfp(bad.objects[0].plan, mfp)),))
    client = connect(*started(bad, good))
    client.wait_for(reaches("output", good.export_ids[0], 10))
    refused = client.wait_for(
        lambda responses: [r for r in responses if isinstance(r, Failure) and r.kind == "refused"]
    )

    assert refused[0].id == bad.export_ids[0]
    assert "reflect" in refused[0].message
    assert furthest("output", bad.export_ids[0])(client.responses) == Frontier.at(6)


def dataflow_folders(replica: ReplicaProcess) -> list[Path]:
    return matching(replica.home / "scratch", "*/dataflows/*")


def arrangement_files(replica: ReplicaProcess) -> list[Path]:
    return matching(replica.home / "scratch", "*/arrangements/*/*")
