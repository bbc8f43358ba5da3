"""A replica that does not know a feature is not sent the plan; its other dataflows go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, LAG, NOW, R1, R2, TERM, VIEW, VIEW_SHARD, InstanceHarness, at, facade
from tests.controller.replicas.test_excluded_dataflows import collection, held, view
from tests.protocol.samples import ROW, dataflow
from tidemark_operator.controller.controller_events import DataflowGone
from tidemark_operator.controller.frontiers.collection import failures
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.succession import Succession
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile.replica_processes import SILENCE_MS, is_level
from tidemark_operator.handlers.revisions.takeover import _failure
from tidemark_operator.handlers.revisions.takeover import _incompatible as _nobody_knows
from tidemark_operator.handlers.status.replica_statuses import hydrated_on, lacking_on
from tidemark_operator.handlers.status.statuses import _errors, _incompatible
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import (
    DescribedShard,
    Description,
    Failure,
    FailureKind,
    PeekResponse,
    PeekRows,
    Status,
)
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexImport
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES
from tidemark_protocol.plan.refresh import RefreshSchedule

OWNER, PLAIN = "ns/d", "ns/plain"
REFRESHED = view(None, RefreshSchedule(every_ms=1000))
ABOUT = (c.CreateDataflow, c.Schedule, c.AllowWrites, c.AllowCompaction, c.Peek)


def connect(harness: InstanceHarness, replica: ReplicaId, *words: str, table: Frontier | None = None) -> None:
    """A replica that has nothing, and understands these words."""
    found = [] if table is None else [DescribedShard(VIEW_SHARD, True, table, at(0), WriterTerm(0), None)]
    harness.connections += 1
    has = Description("incarnation", None, 0, (), (), tuple(found), words)
    harness.instance.shard_reports.described(has.shards, harness.now)
    harness.instance.connect(replica, harness.connections, harness.now, has=has)


def plain(id: str = "plain") -> DataflowDescription:
    """A table alone, of another Dataflow, which everybody understands."""
    other = replace(view(None), name=id)
    (export,) = other.sink_exports
    shard = replace(export.sink.shard, shard_id=ShardId(id), location=f"file:///data/{id}")  # type: ignore[union-attr]
    return replace(other, sink_exports=(replace(export, id=GlobalId(id), sink=replace(export.sink, shard=shard)),))  # type: ignore[call-arg]


def installed(*descriptions: DataflowDescription) -> InstanceHarness:
    """A refreshed view, and others."""
    harness = InstanceHarness(upper=500)
    harness.instance.create(Dataflow(OWNER, REFRESHED, LAG, stays=True), TERM)
    for each in descriptions:
        harness.instance.create(Dataflow(f"ns/{each.name}", each, LAG, stays=True), TERM)
    return harness


def commands_about(harness: InstanceHarness, replica: ReplicaId) -> list[tuple[str, str]]:
    """The commands to a replica about dataflows: the kind of each command, and the export."""
    commands = [command for command in harness.sent(replica) if isinstance(command, ABOUT)]
    return [(type(each).__name__, _of(each)) for each in commands]


def _of(command: c.Command) -> str:
    if isinstance(command, c.CreateDataflow):
        return command.dataflow.export_ids[0]
    return command.target.id if isinstance(command, c.Peek) else command.id  # type: ignore[union-attr]


def of(*ids: str) -> list[tuple[str, str]]:
    """All of a dataflow that is told from the beginning."""
    return [(kind, id) for id in ids for kind in ("CreateDataflow", "Schedule", "AllowWrites")]


@pytest.mark.parametrize("words", [(), ("of tomorrow",)], ids=["an older image", "another word"])
def test_must_not_tell_a_replica_of_what_it_does_not_understand(words: tuple[str, ...]) -> None:
    """All else is told, whether it connects before or after; the inputs are kept, and are not for it."""
    harness = installed(plain())
    connect(harness, R1, *words)
    assert commands_about(harness, R1) == of("plain")

    harness.instance.drop(OWNER)
    assert commands_about(harness, R1) == []
    harness.instance.create(Dataflow(OWNER, REFRESHED, LAG, stays=True), TERM)
    assert commands_about(harness, R1) == []
    (on,) = collection(harness).replicas.values()
    assert (on.missing_features, on.excluded, on.hydrated, on.reads_from) == ({"refresh"}, True, False, EMPTY.encode())
    assert (collection(harness).hydrated, collection(harness).computing) == (False, [])
    assert collection(harness).lacking == [(R1, {"refresh"})]
    assert held(harness) == at(300)


def test_a_newer_replica_computes_the_plan_beside_an_older_one() -> None:
    """It goes on, is compacted and takes over by the word of the former alone."""
    harness = installed(plain())
    connect(harness, R1)
    connect(harness, R2, *SUPPORTED_FEATURES)
    assert sorted(commands_about(harness, R2)) == sorted(of(VIEW, "plain"))
    harness.report(R2, at(450), VIEW)
    harness.report(R1, at(450), GlobalId("plain"))
    harness.report(R2, at(450), GlobalId("plain"))
    harness.maintain()

    found = collection(harness)
    assert (found.hydrated, found.write, found.since) == (True, at(450), at(449))
    assert [name for name, _ in found.computing] == [R2]
    assert _errors(found) == []
    assert _failure([found]) == _incompatible(running(harness, R1, R2), [found], NOW) == ""
    harness.instance.disconnect(R2)
    assert not collection(harness).hydrated


def test_an_upgraded_replica_gets_the_plan_with_its_next_connection() -> None:
    harness = installed()
    connect(harness, R1)
    assert commands_about(harness, R1) == []
    connect(harness, R1, *SUPPORTED_FEATURES)
    assert commands_about(harness, R1) == of(VIEW)
    assert collection(harness).lacking == []
    connect(harness, R1)
    assert collection(harness).lacking == [(R1, {"refresh"})]


def test_a_plan_that_no_replica_knows_says_so() -> None:
    """It is not as if it were to come, nor a failure of the data."""
    harness = installed(plain())
    connect(harness, R1)
    harness.report(R1, at(450), GlobalId("plain"))
    exports, instance = [collection(harness)], running(harness, R1)

    assert _incompatible(instance, exports, NOW).startswith("the image of replica r1 does not know refresh")
    assert _failure(exports) == "", "it is not of those that fail at it"
    assert _nobody_knows(instance, exports).startswith("the image of replica r1 does not know refresh")
    assert hydrated_on(instance, R1) == (2, 1)
    assert lacking_on(instance, R1) == "its image does not know refresh, and computes nothing of d"
    connect(harness, R2, *SUPPORTED_FEATURES)
    assert (
        _incompatible(running(harness, R1, R2), exports, NOW) == _nobody_knows(running(harness, R1, R2), exports) == ""
    )
    assert hydrated_on(instance, R2) == (2, 0)
    assert lacking_on(instance, R2) == ""


def test_a_failure_counts_for_all_though_older_replicas_are_not_sent_the_plan() -> None:
    """A replica that is not told of it cannot mend it; one for which it is finished needs nothing."""
    harness = installed()
    connect(harness, R1)
    connect(harness, R2, *SUPPORTED_FEATURES)
    harness.hear(R2, Failure(VIEW, FailureKind.STEP, "no room"))
    assert _failure([collection(harness)]) == "step failed: no room (on replica r2)"


def test_must_not_believe_what_such_a_replica_says_of_it() -> None:
    """It was never told of it."""
    harness = installed()
    connect(harness, R1)
    harness.report(R1, at(450), VIEW)
    harness.hear(R1, Status(VIEW, "hydration", {"state": "hydrated"}))
    harness.hear(R1, Failure(VIEW, FailureKind.REFUSED, "a lie"))

    found = collection(harness)
    assert (found.write, found.hydrated, found.replicas[R1].refused_reports) == (None, False, 1)
    assert failures(found.replicas[R1]) == ["refused: its image does not know refresh"]


def test_a_dataflow_that_no_replica_got_is_dropped_without_a_command() -> None:
    """The drop waits for no replica that does not have the dataflow."""
    harness = installed()
    connect(harness, R1)
    assert harness.instance.drop(OWNER) == [DataflowGone(OWNER)]
    assert harness.instance.dataflows.get(OWNER) is None
    assert commands_about(harness, R1) == []


def test_a_lost_one_keeps_nothing_for_it() -> None:
    """It reads nothing, so nothing is to be kept for when it is back."""
    harness = installed()
    connect(harness, R1)
    harness.instance.disconnect(R1, lost_ms=harness.now)
    assert collection(harness).away == {R1: EMPTY.encode()}
    assert held(harness) == at(300)


def test_a_finished_table_needs_no_image_that_understands_it() -> None:
    """Nothing is left to compute."""
    harness = InstanceHarness(upper=500)
    once = view(None, RefreshSchedule(at=(Time(5),)))
    harness.instance.create(Dataflow(OWNER, once, LAG, stays=True), TERM)
    connect(harness, R1, table=EMPTY)
    assert commands_about(harness, R1) == []
    assert (collection(harness).hydrated, collection(harness).lacking) == (True, [])


def test_an_edit_that_is_not_understood_leaves_what_serves() -> None:
    """The predecessor goes on there. On who understands both run; then the successor writes, and there alone."""
    harness = InstanceHarness(upper=500)
    harness.instance.create(Dataflow(OWNER, view(None), LAG, stays=True), TERM)
    connect(harness, R1)
    connect(harness, R2, *SUPPORTED_FEATURES)
    (export,) = REFRESHED.sink_exports
    coming = replace(REFRESHED, sink_exports=(replace(export, id=GlobalId("d/v2")),))
    beside = Succession({GlobalId("d/v2"): VIEW}, frozenset({GlobalId("d/v2")}))
    harness.sent(R1), harness.sent(R2)
    harness.instance.create(Dataflow("ns/d/2", coming, LAG, beside, stays=True), TERM)
    assert commands_about(harness, R1) == []
    assert commands_about(harness, R2) == [("CreateDataflow", "d/v2"), ("Schedule", "d/v2")]

    harness.instance.take_over("ns/d/2", TERM)
    harness.instance.drop(OWNER)
    assert commands_about(harness, R1) == [("AllowCompaction", VIEW)]
    assert commands_about(harness, R2) == [("AllowWrites", "d/v2"), ("AllowCompaction", VIEW)]


def importing(name: str, id: GlobalId, exports: str | None = None) -> DataflowDescription:
    """A Dataflow over an index, with one itself."""
    whole = replace(dataflow(name, 300), source_imports=(), index_imports=(IndexImport(id, id, (), ROW),))
    (index,) = whole.index_exports
    return replace(whole, index_exports=(replace(index, id=GlobalId(exports or f"{name}/i")),), sink_exports=())


def test_importers_of_its_index_are_excluded_too() -> None:
    """And who imports an index of that one. A lookup is asked of those alone that have it."""
    harness = InstanceHarness(upper=500)
    whole = replace(dataflow("d", 300), sink_exports=REFRESHED.sink_exports)
    for owner, each in (
        (OWNER, whole),
        ("ns/e", importing("e", INDEX)),
        ("ns/f", importing("f", GlobalId("e/i"))),
        (PLAIN, plain()),
    ):
        harness.instance.create(Dataflow(owner, each, LAG, stays=True), TERM)
    connect(harness, R1)
    assert commands_about(harness, R1) == of("plain")
    assert lacking_on(running(harness, R1), R1).endswith("computes nothing of d, e, f")

    peek = c.Peek("u", c.IndexTarget(INDEX), Time(399), MapFilterProject(()), Finishing(), ())
    assert harness.instance.peek(peek) == []
    assert commands_about(harness, R1) == []
    assert harness.instance.peeks.peeks_of(R1) == []
    assert not harness.instance.dataflows.is_beginning(OWNER, R1)
    connect(harness, R2, *SUPPORTED_FEATURES)
    connect(harness, R1)
    assert harness.instance.peeks.peeks_of(R1) == []
    assert harness.instance.peeks.peeks_of(R2) == [peek]
    (answer,) = harness.hear(R2, PeekResponse("u", PeekRows(b"", 0)))
    assert answer.uuid == "u"  # type: ignore[union-attr]
    assert "CancelPeek" not in [type(each).__name__ for each in harness.sent(R1)]


def running(harness: InstanceHarness, *online: ReplicaId, **states: ReplicaState) -> RunningInstance:
    """The instance, as code that looks at replicas sees it."""
    found = {ReplicaId(name.replace("_", ".")): state for name, state in states.items()}
    return facade(harness.instance, online=list(online), replicas=found)  # type: ignore[no-any-return]


OLD, NEW = ReplicaId("r1.old"), ReplicaId("r1.new")


def test_a_new_image_takes_the_place_of_one_that_does_not_understand() -> None:
    """The old one has nothing of the view, and nobody waits until it has. The other way round it does not: what is
    served by the one would be by nobody."""
    harness = installed()
    connect(harness, OLD)
    connect(harness, NEW, *SUPPORTED_FEATURES)
    harness.report(NEW, at(450), VIEW)
    there = ReplicaState(None, None, None, online=True, first_greeted_ms=NOW)  # type: ignore[arg-type]
    both = running(harness, OLD, NEW, r1_old=there, r1_new=there)

    assert is_level(both, OLD, NEW, NOW)
    assert not is_level(both, NEW, OLD, NOW + 2 * SILENCE_MS)
