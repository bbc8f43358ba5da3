"""Dataflows as the controller drives them, with drivers that only record: create, schedule, write, compact, drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.replica.plans import COLUMNS, copies, shard, transient
from tidemark_protocol.errors import StageViolation
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.responses import (
    CopyToFailed,
    CopyToResponse,
    Failure,
    FailureKind,
    Frontiers,
    Response,
    SubscribeBatch,
    SubscribeDropped,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import CopyToSink, SubscribeSink
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.installed_dataflows import FULL_PASS_MAX, FULL_PASS_PAUSE_FACTOR, InstalledDataflows
from tidemark_replica.errors import DataflowRefused

A = copies("a", 10, source=shard("t"), index="i", view=shard("v"))
INDEX, V, J, TWIN = GlobalId("i"), GlobalId("a-view"), GlobalId("j"), GlobalId("twin")
READER = copies("b", 10, imports_index="i", index="j")
EMPTY, at = Frontier.empty(), Frontier.at


@dataclass
class Recorder:
    """A driver that does what the test says."""

    dataflow: InstalledDataflow
    calls: list[str] = field(default_factory=list)
    last_words: Response | None = None
    since: dict[GlobalId, Frontier] = field(default_factory=dict)

    def advance(self) -> None:
        self.calls.append("advance")

    def write_frontier(self, id: GlobalId) -> Frontier:
        return self.dataflow.processed

    def allow_writes(self, export: ExportState) -> None:
        self.calls.append(f"writes {export.id} {export.term}")

    def allow_compaction(self, id: GlobalId, since: Frontier) -> None:
        self.since[id] = since

    @property
    def is_stepping(self) -> bool:
        return False

    @property
    def is_superseded(self) -> bool:
        return False

    def drop(self, id: GlobalId) -> Response | None:
        self.calls.append(f"drop {id}")
        return self.last_words

    def retry_now(self) -> None:
        """It has not failed."""

    def report_again(self) -> None:
        self.calls.append("report_again")

    def stop(self) -> None:
        self.calls.append("stop")


class Scene:
    def __init__(self) -> None:
        self.said: list[Response] = []
        self.drivers: list[Recorder] = []
        self.refuse: str | None = None
        self.now = 0.0
        self.dataflows = InstalledDataflows(self._start, self.said.append, lambda id: EMPTY, self._clock)

    def _clock(self) -> float:
        """Everything takes a hundredth of a second."""
        self.now += 0.01
        return self.now

    def _start(self, dataflow: InstalledDataflow, refused: Callable[[str], None]) -> Recorder:
        if self.refuse:
            raise DataflowRefused(self.refuse)
        self.drivers.append(Recorder(dataflow))
        return self.drivers[-1]

    def hear(self) -> list[Response]:
        reported, self.said[:] = list(self.said), []
        return reported


def test_must_stay_suspended_until_all_exports_are_scheduled() -> None:
    """One of two is not enough; scheduling twice changes nothing."""
    scene = Scene()
    scene.dataflows.create(A)
    scene.dataflows.schedule(INDEX)
    scene.dataflows.schedule(INDEX)
    scene.dataflows.maintain()
    assert scene.drivers[0].calls == []
    scene.dataflows.schedule(V)
    scene.dataflows.maintain()

    assert scene.drivers[0].calls == ["advance"]


def test_must_not_write_before_allow_writes() -> None:
    """Writes are allowed per collection, under the newest term given, and idempotently."""
    scene = Scene()
    scene.dataflows.create(A)
    for term in (3, 3, 2):
        scene.dataflows.allow_writes(V, WriterTerm(term))

    assert scene.drivers[0].calls == ["writes a-view 3"] * 3


def test_must_report_empty_frontiers_when_compacted_to_empty() -> None:
    """For each export as it goes; the work ends with the last one; ids that are gone are ignored afterwards."""
    scene = Scene()
    scene.dataflows.create(A)
    scene.dataflows.compact(INDEX, EMPTY)
    assert scene.hear() == [Frontiers(INDEX, EMPTY, EMPTY, EMPTY)]
    assert "stop" not in scene.drivers[0].calls
    scene.dataflows.compact(V, EMPTY)
    scene.dataflows.compact(V, EMPTY)
    scene.dataflows.schedule(V)
    scene.dataflows.maintain()

    assert scene.hear() == [Frontiers(V, EMPTY, EMPTY, EMPTY)]
    assert scene.drivers[0].calls == ["stop"]


def test_a_dropped_index_lives_on_while_it_is_imported() -> None:
    """Reported gone at once, stepped until its last importer ends, and both end together."""
    scene = Scene()
    index = copies("a", 10, source=shard("t"), index="i")
    scene.dataflows.create(index)
    scene.dataflows.create(READER)
    for id in (INDEX, J):
        scene.dataflows.schedule(id)
    scene.dataflows.compact(INDEX, EMPTY)
    scene.dataflows.maintain()
    assert scene.drivers[0].calls == ["advance"]
    scene.dataflows.compact(J, EMPTY)

    assert [d.calls[-1] for d in scene.drivers] == ["stop", "stop"]


def test_must_not_compact_times_that_an_importer_still_reads() -> None:
    """AllowCompaction speaks for external readers only: an importer holds its as_of, then what lies before its step."""
    scene = Scene()
    scene.dataflows.create(copies("a", 10, source=shard("t"), index="i"))
    scene.dataflows.create(READER)
    owner, reader = scene.drivers
    scene.dataflows.compact(INDEX, at(50))
    scene.dataflows.maintain()
    assert owner.since[INDEX] == at(10)
    reader.dataflow.hydrated, reader.dataflow.processed = True, at(31)
    scene.dataflows.maintain()
    assert owner.since[INDEX] == at(30)
    scene.dataflows.compact(J, EMPTY)
    scene.dataflows.maintain()

    assert owner.since[INDEX] == at(50)


def test_a_dropped_index_holds_back_no_other() -> None:
    """Two may be one arrangement. The batches of the dropped one that a peek or an importer still reads stay."""
    scene = Scene()
    twin = replace(A.index_exports[0], id=TWIN)
    scene.dataflows.create(replace(A, index_exports=(*A.index_exports, twin)))
    scene.dataflows.create(READER)
    owner = scene.drivers[0]
    scene.dataflows.compact(INDEX, EMPTY)
    scene.dataflows.compact(TWIN, at(50))
    scene.dataflows.maintain()
    assert owner.since == {INDEX: at(10), TWIN: at(10)}
    scene.dataflows.compact(J, EMPTY)
    scene.dataflows.maintain()

    assert owner.since == {INDEX: EMPTY, TWIN: at(50)}


def test_must_refuse_an_id_that_exists() -> None:
    """Export ids are unique in a conversation."""
    scene = Scene()
    scene.dataflows.create(A)
    with pytest.raises(StageViolation, match="i exists already"):
        scene.dataflows.create(copies("other", 10, source=shard("t"), index="i"))


@pytest.mark.parametrize("missing", [False, True], ids=["not rendered", "index not here"])
def test_a_dataflow_that_cannot_run_is_said_so_and_stays_at_its_as_of(missing: bool) -> None:
    """It never kills the replica; its frontiers stand at the as_of, and dropping it works."""
    scene = Scene()
    scene.refuse = None if missing else "no operator for LetRec"
    scene.dataflows.create(READER if missing else copies("b", 10, source=shard("t"), index="j"))
    scene.dataflows.schedule(J)
    scene.dataflows.maintain()

    status, frontiers = scene.hear()
    assert isinstance(status, Failure)
    assert status.kind == FailureKind.REFUSED
    assert ("index i" if missing else "LetRec") in status.message
    assert frontiers == Frontiers(J, at(10), at(10), at(10))
    scene.dataflows.compact(J, EMPTY)
    assert scene.hear() == [Frontiers(J, EMPTY, EMPTY, EMPTY)]


def test_must_answer_subscribes_and_copies_once_and_never_report_their_frontiers() -> None:
    """Refused ones end at once: the subscribe with an error over all times, the copy with its failure."""
    scene = Scene()
    scene.refuse = "not built"
    scene.dataflows.create(transient("s", SubscribeSink(COLUMNS)))
    scene.dataflows.create(transient("c", CopyToSink(COLUMNS, "/out", "csv")))
    scene.dataflows.maintain()
    for id in ("s", "c"):
        scene.dataflows.compact(GlobalId(id), EMPTY)

    answers = [r for r in scene.hear() if not isinstance(r, Failure)]
    assert answers == [
        SubscribeResponse(GlobalId("s"), SubscribeBatch(at(0), EMPTY, error="not built")),
        CopyToResponse(GlobalId("c"), CopyToFailed("not built")),
    ]


def test_reconcile_reuses_what_is_the_same_and_tells_it_again() -> None:
    """The same driver goes on; the new client hears from its own as_of on; nothing is said of what was dropped."""
    scene = Scene()
    gone = copies("gone", 10, source=shard("t"), index="k")
    scene.dataflows.create(A)
    scene.dataflows.create(gone)
    scene.drivers[0].dataflow.processed, scene.drivers[0].dataflow.hydrated = at(40), True
    scene.dataflows.maintain()
    scene.hear()
    (verdict,) = scene.dataflows.reconcile([replace(A, as_of=Time(20))], {})
    scene.dataflows.maintain()

    assert verdict.reused
    assert scene.drivers[1].calls == ["stop"]
    assert scene.hear() == [Frontiers(id, at(40), at(40), at(40)) for id in (INDEX, V)]
    assert scene.dataflows.describe()[0][0].as_of == 20


def test_of_many_only_those_are_looked_at_that_something_has_happened_to() -> None:
    """A command or a step of an input is looked at at once. All of them are looked at now and then, for what comes with
    time alone."""
    scene = Scene()
    for number in range(FULL_PASS_MAX):
        scene.dataflows.create(copies(f"d{number}", 10, source=shard("t"), index=f"i{number}"))
        scene.dataflows.schedule(GlobalId(f"i{number}"))
    scene.dataflows.create(copies("reader", 10, imports_index="i3", index="j"))
    scene.dataflows.schedule(J)
    scene.dataflows.maintain()
    for driver in scene.drivers:
        driver.calls.clear()

    scene.dataflows.maintain()
    assert looked_at(scene) == set()
    scene.drivers[3].dataflow.progress(at(20))
    scene.dataflows.schedule(GlobalId("i5"))
    scene.dataflows.maintain()
    assert looked_at(scene) == {"d3", "reader", "d5"}

    scene.now += FULL_PASS_PAUSE_FACTOR
    scene.dataflows.maintain()
    assert len(looked_at(scene)) == FULL_PASS_MAX + 1


def looked_at(scene: Scene) -> set[str]:
    """The dataflows that were driven since the last time."""
    found = {d.dataflow.description.name for d in scene.drivers if "advance" in d.calls}
    for driver in scene.drivers:
        driver.calls.clear()
    return found


def test_must_say_last_words_of_what_is_dropped_before_its_end() -> None:
    """A subscribe or a copy: the sink knows them. One that was dropped for a new client has no one to tell."""
    scene = Scene()
    words = SubscribeResponse(GlobalId("s"), SubscribeDropped(at(7)))
    scene.dataflows.create(transient("s", SubscribeSink(COLUMNS)))
    scene.drivers[0].last_words = words
    for _ in range(2):
        scene.dataflows.compact(GlobalId("s"), EMPTY)
    assert scene.hear() == [words]
    assert scene.drivers[0].calls == ["drop s", "stop"]

    scene.dataflows.create(transient("s", SubscribeSink(COLUMNS)))
    scene.drivers[1].last_words = words
    scene.dataflows.reconcile([transient("s", SubscribeSink(COLUMNS))], {})
    assert scene.hear() == []
    assert scene.drivers[1].calls == ["stop"]
