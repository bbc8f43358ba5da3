"""Responses to a client that reads slowly, or not at all."""

from __future__ import annotations

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.responses import (
    Failure,
    FailureKind,
    Frontiers,
    PeekResponse,
    PeekRows,
    Response,
    ShardFrontiers,
    Status,
)
from tidemark_replica.errors import ClientTooSlow
from tidemark_replica.events.outbox import Outbox

A, B = GlobalId("a"), GlobalId("b")


def waiting(outbox: Outbox) -> list[Response]:
    return next(outbox.batches())


def test_reports_about_one_thing_become_one() -> None:
    """A thousand frontiers of one collection take the room of one, each kind with its newest value."""
    outbox = Outbox()
    outbox.put(Frontiers(A, input=Frontier.at(3)))
    for time in range(1000):
        outbox.put(Frontiers(A, write=Frontier.at(time)))
        outbox.put(ShardFrontiers(ShardId("s"), Frontier.at(time), Frontier.minimum()))
        outbox.put(Status(A, "hydration", {"time": str(time)}))
    outbox.put(Frontiers(B, write=Frontier.at(1)))

    assert waiting(outbox) == [
        Frontiers(A, write=Frontier.at(999), input=Frontier.at(3)),
        ShardFrontiers(ShardId("s"), Frontier.at(999), Frontier.minimum()),
        Status(A, "hydration", {"time": "999"}),
        Frontiers(B, write=Frontier.at(1)),
    ]


def test_merged_reports_take_the_last_position() -> None:
    """An earlier report does not come after a later one: a step that failed and went on has gone on, not failed."""
    outbox = Outbox()
    answer, failed = PeekResponse("p", PeekRows(b"x", 1)), Failure(A, FailureKind.STEP, "no")
    outbox.put(Frontiers(A, input=Frontier.at(5)))
    outbox.put(failed)
    outbox.put(answer)
    outbox.put(Frontiers(A, write=Frontier.at(9)))

    assert waiting(outbox) == [failed, answer, Frontiers(A, write=Frontier.at(9), input=Frontier.at(5))]


def test_answers_are_kept_one_by_one() -> None:
    """Peek responses never merge, and stay in order."""
    outbox = Outbox()
    answers = [PeekResponse(f"p{i}", PeekRows(b"x", 1)) for i in range(3)]
    for answer in answers:
        outbox.put(answer)

    assert waiting(outbox) == answers


def test_a_client_that_does_not_read_results_is_given_up() -> None:
    """Past the limit of bytes the conversation fails, and nothing is kept for it any more."""
    outbox = Outbox(limit_bytes=10)
    outbox.put(PeekResponse("p1", PeekRows(b"12345678", 1)))
    outbox.put(PeekResponse("p2", PeekRows(b"12345678", 1)))

    assert isinstance(outbox.failure, ClientTooSlow)
    assert list(outbox.batches()) == []


def test_waiting_responses_are_sent_at_a_clean_end() -> None:
    """Closing without a failure ends the conversation after what was put before."""
    outbox = Outbox()
    outbox.put(Frontiers(A, write=Frontier.at(1)))
    outbox.close()
    outbox.put(Frontiers(A, write=Frontier.at(2)))

    assert list(outbox.batches()) == [[Frontiers(A, write=Frontier.at(1))]]
