"""A dataflow that another program's commits make begin anew again and again: when it is computed again, and what is
said meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tests.replica.command_loop.test_must_dataflows import INDEX, READER, A, J, Scene
from tests.replica.plans import COLUMNS, copies, shard, transient
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import (
    Failure,
    FailureKind,
    Response,
    Status,
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexImport, SubscribeSink
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_replica.dataflow.installed_dataflow import Outdated
from tidemark_replica.dataflow.recomputation_pauses import MAX_SECONDS, QUIET_SECONDS, RecomputationPauses
from tidemark_replica.dataflow.reconciliation import export_set
from tidemark_replica.peek.peek_targets import InstalledPeekTargets

B = copies("b", 10, source=shard("t"), index="k")
CHANGE = Outdated("another program committed version 7 (DELETE) to the table t", is_certain=True)


class Changed(Scene):
    """Clients that want the same dataflows, one after the other."""

    def __init__(self, *wanted: DataflowDescription) -> None:
        super().__init__()
        self.wanted = wanted
        self.connect()

    def connect(self) -> list[Response]:
        """Returns the responses that the new client gets."""
        self.hear()
        verdicts = self.dataflows.reconcile(self.wanted, {})
        for verdict in verdicts:
            if not verdict.reused:
                self.dataflows.create(verdict.wanted)
            for id in verdict.wanted.export_ids:
                self.dataflows.schedule(id)
        self.dataflows.maintain()
        return self.hear()

    def change(self, of: DataflowDescription = A) -> list[Response]:
        """Another program changes a table of the dataflow. Returns the responses of the replica."""
        driver = next(d for d in reversed(self.drivers) if d.dataflow.description == of)
        assert "stop" not in driver.calls
        driver.dataflow.outdated = CHANGE
        self.hear()
        self.dataflows.maintain()
        return self.hear()

    def needs_client(self, after: float = 0.0) -> bool:
        self.now += after
        self.dataflows.maintain()
        return self.dataflows.take_need_of_client()


def failures(told: list[Response]) -> dict[GlobalId, int]:
    """The number of times in a row that each pausing export has begun anew."""
    paused = [each for each in told if isinstance(each, Failure) and each.kind == FailureKind.STEP]
    assert all(CHANGE.message in each.message and "after a pause of" in each.message for each in paused)
    return {each.id: each.attempts for each in paused}


def test_it_is_computed_again_at_once_and_then_after_pauses_that_grow() -> None:
    """The exports say so meanwhile, and the client is left alone until the pause ends."""
    scene = Changed(A)
    assert failures(scene.change()) == {}
    assert scene.needs_client()
    for begun, seconds in ((2, 1), (3, 2), (4, 4)):
        assert failures(scene.connect()) == {}
        assert failures(scene.change()) == dict.fromkeys(A.export_ids, begun)
        assert not scene.needs_client(seconds - 0.5)
        assert scene.needs_client(0.5)
    told = scene.connect()
    assert failures(told) == {}
    changes = {r.id: r.fields["message"] for r in told if isinstance(r, Status) and r.kind == "table_changed"}
    assert changes == dict.fromkeys(
        A.export_ids, f"{CHANGE.change}. The dataflow is computed again from the table as it is now"
    )
    assert scene.drivers[-1].calls[-1] == "advance"


def test_a_client_that_comes_in_the_pause_is_told_and_ends_no_pause() -> None:
    """Nothing of it is computed, described or read: also where the client came for another dataflow."""
    scene = Changed(A, B)
    scene.change(), scene.connect()
    scene.dataflows.take_need_of_client()
    scene.change()
    began = len(scene.drivers)
    scene.change(B)
    assert scene.needs_client(), "for the other one, at once"
    for _ in range(2):
        assert failures(scene.connect()) == dict.fromkeys(A.export_ids, 2)
    assert [driver.dataflow.description for driver in scene.drivers[began:]] == [B]
    assert [set(each.export_ids) for each in scene.dataflows.describe()[0]] == [{"k"}]
    assert not scene.needs_client()
    assert scene.needs_client(1.0)
    assert failures(scene.connect()) == {}
    assert scene.drivers[-1].dataflow.description == A
    assert not scene.needs_client(5.0)


def test_each_pause_ends_by_itself() -> None:
    """The end of the shorter one brings a client, and the other dataflow goes on waiting for its own."""
    scene = Changed(A, B)
    for of in (A, B, B):
        scene.change(of), scene.needs_client(1.0), scene.connect()
    scene.change(A), scene.change(B)
    assert scene.needs_client(1.0)
    assert failures(scene.connect()) == dict.fromkeys(B.export_ids, 3)
    assert not scene.needs_client()
    assert scene.needs_client(1.0)
    assert failures(scene.connect()) == {}
    assert scene.drivers[-1].dataflow.description == B


def test_what_reads_its_index_waits_with_it_and_what_a_client_waits_for_is_refused() -> None:
    """A subscribe that ran fails at once, and no client is needed for it."""
    scene = Changed(A, READER)
    scene.change(), scene.connect()
    scene.dataflows.take_need_of_client()
    assert set(failures(scene.change())) == {*A.export_ids, J}
    assert set(failures(scene.connect())) == {*A.export_ids, J}

    subscribe = replace(transient("s", SubscribeSink(COLUMNS)), index_imports=READER.index_imports)
    assert isinstance(subscribe.index_imports[0], IndexImport)
    scene.dataflows.create(subscribe)
    (batch,) = [r.result for r in scene.hear() if isinstance(r, SubscribeResponse)]
    assert isinstance(batch, SubscribeBatch)
    assert "after a pause of 1 s" in str(batch.error)
    assert scene.needs_client(1.0)
    assert failures(scene.connect()) == {}
    assert {d.dataflow.description.name for d in scene.drivers[-2:]} == {"a", "b"}


def test_a_subscribe_that_fails_needs_no_other_client() -> None:
    """It is not computed again, so nothing is remembered of it once it is dropped."""
    subscribe = transient("s", SubscribeSink(COLUMNS))
    scene = Changed(subscribe)
    (answer,) = scene.change(subscribe)
    assert isinstance(answer, SubscribeResponse)
    assert not scene.needs_client(MAX_SECONDS)
    scene.dataflows.compact(GlobalId("s"), Frontier.empty())
    assert (scene.dataflows._outdated, scene.dataflows._pauses._last) == ({}, {})


def test_one_that_is_dropped_in_its_pause_needs_no_client() -> None:
    """Nothing is to be computed."""
    scene = Changed(A)
    scene.change(), scene.connect()
    scene.dataflows.take_need_of_client()
    scene.change()
    for id in A.export_ids:
        scene.dataflows.compact(id, Frontier.empty())
    assert not scene.needs_client(5.0)


def test_pauses_are_bounded_and_end_after_a_quiet_time() -> None:
    """Counted from when it was computed again; each dataflow has its own; what is not wanted is forgotten."""
    now = [0.0]
    pauses, a, b = RecomputationPauses(lambda: now[0]), export_set(A), export_set(B)
    seconds = []
    for _ in range(40):
        seconds.append(pauses.begin(a).seconds)
        now[0] += seconds[-1] + QUIET_SECONDS - 1
    assert seconds[:5] == [0, 1, 2, 4, 8]
    assert set(seconds[10:]) == {MAX_SECONDS}
    assert pauses.begin(b).seconds == 0
    now[0] += QUIET_SECONDS + 1
    assert pauses.begin(a).seconds == 0
    pauses.keep_only([b])
    assert pauses.begin(a).begun == 1
    assert pauses.begin(b).begun == 1


def test_an_index_cannot_be_read_in_the_pause() -> None:
    """The replica gives the reason at once, as the arrangement of the index is gone."""
    scene, nobody = Changed(A), cast(Any, None)
    targets = InstalledPeekTargets(scene.dataflows, nobody, nobody, nobody, nobody, nobody)
    scene.change(), scene.connect()
    scene.change()
    peek = Peek("p", IndexTarget(INDEX), A.as_of, MapFilterProject(()), Finishing(), ())
    assert "after a pause of 1 s" in str(targets.readable(peek))
