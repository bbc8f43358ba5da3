"""Streams of several replicas as one: no gap or overlap, with replicas that lead, lag, die or send wrong batches."""

from __future__ import annotations

import pytest

from tidemark_operator.controller.answers.copies import Copies, CopyAnswer
from tidemark_operator.controller.answers.subscribes import ProtocolViolation, Subscribes
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.responses import (
    CopyToDone,
    CopyToDropped,
    CopyToFailed,
    CopyToResponse,
    SubscribeBatch,
    SubscribeDropped,
    SubscribeResponse,
)

S, R1, R2 = GlobalId("s"), ReplicaId("r1"), ReplicaId("r2")
BOTH = (R1, R2)
EMPTY = Frontier.empty()


class Scene:
    """The messages to the client, as bounds."""

    def __init__(self, target: ReplicaId | None = None) -> None:
        self.book = Subscribes()
        self.book.add(S, target)
        self.told: list[tuple[str, str]] = []
        self.error: str | None = None
        self.is_void = False

    def says(self, replica: ReplicaId, lower: float, upper: float | None, error: str | None = None) -> Frontier | None:
        """A batch; a fraction of a bound is a part of its time."""
        (at, part), (to, upto) = _bound(lower), _bound(upper)
        batch = SubscribeBatch(at, to, b"rows", error, part, upto)
        return self._hears(replica, SubscribeResponse(S, batch))

    def says_void(self, replica: ReplicaId, why: str) -> Frontier | None:
        return self._hears(
            replica, SubscribeResponse(S, SubscribeBatch(Frontier.at(0), EMPTY, error=why, is_void=True))
        )

    def drops(self, replica: ReplicaId, at: int) -> Frontier | None:
        return self._hears(replica, SubscribeResponse(S, SubscribeDropped(Frontier.at(at))))

    def loses(self, replica: ReplicaId, connected: tuple[ReplicaId, ...]) -> None:
        self._tell(self.book.forget(replica, lambda _: connected))

    def _hears(self, replica: ReplicaId, response: SubscribeResponse) -> Frontier | None:
        try:
            heard = self.book.hear(replica, response, lambda _: BOTH, dropped=True)
        except ProtocolViolation:
            return None
        self._tell(heard[1])
        return heard[0]

    def _tell(self, news: object) -> None:
        for each in news:  # type: ignore[attr-defined]
            self.told.append((_shown(*each.lower), _shown(each.batch.upper, each.batch.upper_part)))
            self.error, self.is_void = each.batch.error, each.batch.is_void


def _bound(number: float | None) -> tuple[Frontier, int]:
    if number is None:
        return EMPTY, 0
    return Frontier.at(int(number)), round(number % 1 * 10)


def _shown(frontier: Frontier, part: int) -> str:
    return f"{frontier}" + (f".{part}" if part else "")


def test_must_merge_overlapping_streams_without_gap_or_overlap() -> None:
    """Whoever is further tells, from where the last ended; who lags tells nothing."""
    scene = Scene()
    scene.says(R1, 0, 10)
    scene.says(R2, 0, 7)
    scene.says(R2, 7, 13)
    scene.says(R1, 10, 13)
    scene.says(R1, 13, 20)

    assert scene.told == [("{0}", "{10}"), ("{10}", "{13}"), ("{13}", "{20}")]


def test_must_go_on_with_another_replica_where_the_leading_one_died_within_a_time() -> None:
    """The bounds of parts are those of hashes, which are the same everywhere."""
    scene = Scene()
    scene.says(R1, 0, 10.3)
    scene.says(R2, 0, 10.2)
    scene.loses(R1, (R2,))
    scene.says(R2, 10.2, 10.7)
    scene.says(R2, 10.7, 11)
    scene.says(R1, 0, 12)

    assert scene.told == [("{0}", "{10}.3"), ("{10}.3", "{10}.7"), ("{10}.7", "{11}"), ("{11}", "{12}")]


@pytest.mark.parametrize(("lower", "upper"), [(12, 15), (8, 15), (10, 10), (10, 9), (10.1, 15)])
def test_must_not_believe_a_stream_with_a_gap_or_an_overlap(lower: float, upper: float) -> None:
    """It is connected anew, and begins anew; the other goes on."""
    scene = Scene()
    scene.says(R1, 0, 10)
    assert scene.says(R1, lower, upper) is None
    scene.says(R2, 0, 12)
    scene.loses(R1, (R2,))
    assert scene.says(R1, 0, 15) == Frontier.at(15)

    assert scene.told == [("{0}", "{10}"), ("{10}", "{12}"), ("{12}", "{15}")]


def test_a_replica_is_as_far_as_its_own_stream() -> None:
    """Also where nothing of it is told: its holds follow it, and at its end it has none."""
    scene = Scene()
    scene.says(R1, 0, 20)
    assert scene.says(R2, 0, 10.5) == Frontier.at(10)
    assert scene.says(R2, 10.5, 14) == Frontier.at(14)
    assert scene.drops(R2, 14) == EMPTY
    assert scene.says(R2, 14, 16) is None
    assert scene.says(R1, 20, None) == EMPTY


def test_an_error_ends_the_subscribe_once_every_replica_has_one() -> None:
    """One replica's full disk is not the data's fault."""
    scene = Scene()
    scene.says(R1, 0, 10)
    assert scene.says(R1, 10, None, "disk full") == EMPTY
    scene.says(R2, 0, 12)
    assert scene.error is None
    scene.says(R2, 12, None, "division by zero")
    scene.says(R2, 12, None, "division by zero")

    assert scene.told == [("{0}", "{10}"), ("{10}", "{12}"), ("{12}", "{}")]
    assert scene.error == "disk full"


@pytest.mark.parametrize("target", [None, R1])
def test_must_end_at_once_where_a_replica_knows_that_what_was_sent_is_void(target: ReplicaId | None) -> None:
    """The other replica began after the change, and would go on from what the client does not have."""
    scene = Scene(target)
    scene.says(R1, 0, 10)
    scene.says(R2, 0, 10)
    assert scene.says_void(R1, "another program") == EMPTY
    scene.says(R2, 10, 12)

    assert scene.told == [("{0}", "{10}"), ("{10}", "{}")]
    assert (scene.error, scene.is_void) == ("another program", True)


def test_must_not_end_a_targeted_subscribe_for_what_another_replica_knows() -> None:
    scene = Scene(R2)
    scene.says(R2, 0, 10)
    scene.says_void(R1, "another program")
    assert scene.error is None


def test_an_error_is_told_when_those_without_one_are_gone() -> None:
    """The only replica left has failed."""
    scene = Scene()
    scene.says(R1, 0, None, "division by zero")
    assert scene.told == []
    scene.loses(R2, (R1,))

    assert (scene.told, scene.error) == ([("{0}", "{}")], "division by zero")


def test_must_tell_a_targeted_subscribe_by_its_target_alone_and_end_it_with_that() -> None:
    """Others compute it, and their holds follow; they neither lead nor take over, and their errors are their own."""
    scene = Scene(target=R2)
    assert scene.says(R1, 0, 10) == Frontier.at(10)
    assert scene.says(R2, 0, 7) == Frontier.at(7)
    scene.says(R1, 10, None, "disk full")
    scene.loses(R1, (R2,))
    scene.says(R2, 7, 9)
    assert scene.told == [("{0}", "{7}"), ("{7}", "{9}")]
    scene.loses(R2, ())
    assert (scene.told[-1], scene.error) == (("{9}", "{}"), "replica r2, which alone serves this subscribe, was lost")

    scene = Scene(target=R2)
    scene.says(R2, 0, None, "disk full")
    assert scene.error == "disk full"


def test_batches_of_a_forgotten_replica_are_ignored() -> None:
    """Pruned once no replica has anything of it."""
    scene = Scene()
    scene.book.prune(lambda id: False)
    assert not scene.book.has(S)


DONE, FULL, NOT_HERE = CopyToDone(7), CopyToFailed("disk full"), CopyToFailed("not here")


@pytest.mark.parametrize(
    ("reported", "answers"),
    [
        ([(R1, DONE), (R2, DONE)], [DONE]),
        ([(R1, FULL), (R2, DONE)], [DONE]),
        ([(R1, FULL), (R2, NOT_HERE), (R1, FULL)], [FULL]),
        ([(R1, FULL), (R1, FULL)], []),
        ([(R1, CopyToDropped()), (R2, FULL)], []),
        ([(R1, DONE), (R2, FULL), (R1, FULL)], [DONE]),
    ],
)
def test_must_have_one_winner_among_the_copies_of_replicas(
    reported: list[tuple[ReplicaId, CopyToDone | CopyToFailed | CopyToDropped]], answers: list[object]
) -> None:
    """The first that completes it; else, once all have failed, the first failure."""
    book = Copies()
    book.add(S)
    found = [a for replica, result in reported for a in book.hear(replica, CopyToResponse(S, result), lambda _: BOTH)]

    assert found == [CopyAnswer(S, answer) for answer in answers]  # type: ignore[arg-type]


def test_a_failed_copy_is_told_when_the_others_are_gone() -> None:
    """And one that comes back tries anew."""
    book = Copies()
    book.add(S)
    book.hear(R1, CopyToResponse(S, FULL), lambda _: BOTH)
    assert book.forget(R1, lambda _: (R2,)) == []
    book.hear(R1, CopyToResponse(S, FULL), lambda _: BOTH)
    assert book.forget(R2, lambda _: (R1,)) == [CopyAnswer(S, FULL)]
    assert book.forget(R1, lambda _: ()) == []
