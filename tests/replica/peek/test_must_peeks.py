"""Peeks as a plain object: one answer each, at the right moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekCanceled, PeekError, PeekResponse, PeekRows, PeekStashed, Response
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.errors import StashNotFound
from tidemark_replica.events.jobs import Done, Failed, Job, Outcome
from tidemark_replica.peek.peek_queue import PeekQueue, Readable
from tidemark_replica.peek.peek_reader import AnswerLimits
from tidemark_replica.peek.result_stash import ResultSpool, ResultStash, StashedResult
from tidemark_replica.render.errors import CollectionInError, ResultTooLarge

INDEX = GlobalId("i")
ROWS = PeekRows(b"rows", 1)


class Index:
    """The readable times of an index, moved by the test; reads end when the test says so."""

    def __init__(self, since: int, upper: int) -> None:
        self.since, self.upper, self.gone = since, upper, False
        self.reads: list[Callable[[Outcome[PeekRows | StashedResult]], None]] = []
        self.jobs: list[Job] = []

    def readable(self, peek: Peek) -> Readable | str | None:
        return "i was dropped" if self.gone else Readable(Frontier.at(self.since), Frontier.at(self.upper))

    def read(self, peek: Peek, limits: AnswerLimits, done: Callable[[Outcome[PeekRows | StashedResult]], None]) -> Job:
        self.reads.append(done)
        self.jobs.append(Job(peek.uuid))
        return self.jobs[-1]

    def forget(self, peek: Peek) -> None: ...


def peek(uuid: str, at: int) -> Peek:
    return Peek(uuid, IndexTarget(INDEX), Time(at), MapFilterProject(()), Finishing(), ())


class Scene:
    def __init__(self, since: int, upper: int, folder: Path = Path()) -> None:
        """`folder`: where large answers are kept."""
        self.said: list[Response] = []
        self.stash = ResultStash(folder)
        self.index = Index(since, upper)
        self.peeks = PeekQueue(self.said.append, self.index, self.stash)

    def move(self, upper: int) -> None:
        self.index.upper = upper
        self.peeks.maintain()


def test_must_answer_once_when_the_time_is_complete() -> None:
    """Not before the upper is beyond the timestamp; then read once, answered once."""
    scene = Scene(since=0, upper=10)
    scene.peeks.add(peek("p", 10))
    assert scene.index.reads == []
    scene.move(11)
    scene.move(12)
    (read,) = scene.index.reads
    read(Done(ROWS))

    assert scene.said == [PeekResponse("p", ROWS)]
    assert len(scene.peeks) == 0


def test_must_answer_an_error_before_the_since() -> None:
    """A time that is not readable any more is an error, at once."""
    scene = Scene(since=5, upper=10)
    scene.peeks.add(peek("p", 4))

    (answer,) = scene.said
    assert isinstance(answer, PeekResponse)
    assert isinstance(answer.result, PeekError)
    assert "{5}" in answer.result.message


@pytest.mark.parametrize(
    ("error", "everywhere"),
    [(CollectionInError("division by zero"), True), (ResultTooLarge("8 GiB"), True), (OSError("disk full"), False)],
)
def test_must_say_of_an_error_whether_any_replica_would_give_it(error: Exception, everywhere: bool) -> None:
    """Another replica need not have the trouble of this one."""
    scene = Scene(since=5, upper=10)
    scene.peeks.add(peek("p", 8))
    scene.index.reads[0](Failed(error))
    scene.peeks.add(peek("q", 4))

    assert scene.said[0] == PeekResponse("p", PeekError(str(error), everywhere))
    assert isinstance(scene.said[1], PeekResponse)
    assert isinstance(scene.said[1].result, PeekError)
    assert not scene.said[1].result.is_deterministic


def test_a_peek_that_was_readable_stays_so_while_it_waits() -> None:
    """Compaction that comes later does not take its time away: it is held."""
    scene = Scene(since=0, upper=5)
    scene.peeks.add(peek("p", 7))
    assert scene.peeks.hold(INDEX) == Frontier.at(7)
    scene.index.since = 9
    scene.move(9)

    assert len(scene.index.reads) == 1
    scene.index.reads[0](Done(ROWS))
    assert scene.peeks.hold(INDEX) == Frontier.empty()


def test_must_cancel_once_and_only_pending_peeks() -> None:
    """Canceled while waiting or reading; after an answer, or a cancel, or for unknown uuids: nothing."""
    scene = Scene(since=0, upper=10)
    for uuid, at in (("waiting", 10), ("reading", 9), ("answered", 8)):
        scene.peeks.add(peek(uuid, at))
    scene.index.reads[1](Done(ROWS))
    for uuid in ("waiting", "reading", "answered", "unknown", "waiting"):
        scene.peeks.cancel(uuid)
    scene.index.reads[0](Done(ROWS))

    assert scene.said == [
        PeekResponse("answered", ROWS),
        PeekResponse("waiting", PeekCanceled()),
        PeekResponse("reading", PeekCanceled()),
    ]
    assert scene.index.jobs[0].cancelled


def test_must_drop_peeks_of_a_gone_client_silently() -> None:
    """A read that ends later answers no one, not even a new peek under the same uuid."""
    scene = Scene(since=0, upper=10)
    scene.peeks.add(peek("p", 9))
    scene.peeks.drop_all()
    scene.peeks.add(peek("p", 9))
    scene.index.reads[0](Failed(OSError("too late")))
    assert scene.said == []
    scene.index.reads[1](Done(ROWS))

    assert scene.said == [PeekResponse("p", ROWS)]


@pytest.mark.parametrize("reading", [False, True])
def test_a_dropped_index_answers_waiting_peeks_with_an_error(reading: bool) -> None:
    """One that is being read already may still be answered with rows."""
    scene = Scene(since=0, upper=11 if reading else 10)
    scene.peeks.add(peek("p", 10))
    scene.index.gone = True
    scene.peeks.maintain()
    if reading:
        scene.index.reads[0](Done(ROWS))

    (answer,) = scene.said
    assert isinstance(answer, PeekResponse)
    assert isinstance(answer.result, PeekRows if reading else PeekError)


def stashed(scene: Scene, content: bytes) -> StashedResult:
    """A large answer, written whole."""
    spool = ResultSpool(scene.stash, spill_above=0)
    spool.write(content)
    return StashedResult(spool, 1)


def test_must_answer_a_stashed_peek_once_and_keep_it_until_cancelled(tmp_path: Path) -> None:
    """One PeekStashed; pieces from any offset; CancelPeek takes it away, and is not answered."""
    scene = Scene(0, 10, tmp_path)
    scene.peeks.add(peek("p", 9))
    scene.index.reads[0](Done(stashed(scene, b"0123456789")))
    assert scene.said == [PeekResponse("p", PeekStashed(1, 10))]
    assert [scene.stash.read_piece("p", offset) for offset in (0, 4, 4, 10)] == [
        b"0123456789",
        b"456789",
        b"456789",
        b"",
    ]
    scene.peeks.cancel("p")
    scene.peeks.cancel("p")

    assert len(scene.said) == 1
    assert scene.stash.bytes_on_disk == 0
    with pytest.raises(StashNotFound):
        scene.stash.read_piece("p", 0)


@pytest.mark.parametrize("end", ["cancel", "drop_all"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_no_stash_outlives_its_client(end: str, when: str, tmp_path: Path) -> None:
    """Cancelled, or the client gone, while it is being written or after it was answered: its room is free."""
    scene = Scene(0, 10, tmp_path)
    scene.peeks.add(peek("p", 9))
    answer = stashed(scene, b"0123456789")
    if when == "after":
        scene.index.reads[0](Done(answer))
    scene.peeks.cancel("p") if end == "cancel" else scene.peeks.drop_all()
    if when == "before":
        scene.index.reads[0](Done(answer))

    assert scene.stash.bytes_on_disk == 0
    with pytest.raises(StashNotFound):
        scene.stash.read_piece("p", 0)
