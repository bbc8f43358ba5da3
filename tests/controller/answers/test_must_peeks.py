"""The answer that counts where several replicas answer a peek."""

from __future__ import annotations

from tests.controller.harness import INDEX, R1, R2, InstanceHarness, at
from tests.controller.test_must_commands import ROWS, peek
from tidemark_operator.controller.answers.peeks import PATIENCE_MS, PeekAnswer
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import Frontiers, PeekError, PeekResponse


def test_must_not_take_one_replicas_error_for_the_answer_while_another_may_answer() -> None:
    """Its stash is full, or it is too old for the plan: the healthy one answers. An error of the data or the question
    counts from any replica."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    for uuid in ("p", "q"):
        harness.instance.peek(peek(uuid, 310))
    own, of_all = PeekError("the disk is full"), PeekError("division by zero", is_deterministic=True)

    assert harness.hear(R1, PeekResponse("p", own)) == []
    assert harness.hear(R1, PeekResponse("p", own)) == []
    assert harness.hear(R2, PeekResponse("p", ROWS)) == [PeekAnswer("p", ROWS)]
    assert harness.hear(R1, PeekResponse("q", of_all)) == [PeekAnswer("q", of_all)]
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.holds == {}


def test_must_answer_with_an_error_once_all_asked_replicas_failed_or_are_gone() -> None:
    """The peek does not wait for a replica that will not answer; a replica that connects again may answer it."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    for uuid in ("p", "q", "r"):
        harness.instance.peek(peek(uuid, 310))
    first, second = PeekError("the disk is full"), PeekError("too old for the plan")
    assert harness.hear(R1, PeekResponse("p", first)) == []
    assert harness.hear(R2, PeekResponse("p", second)) == [PeekAnswer("p", first)]
    assert harness.hear(R2, PeekResponse("q", second)) == []
    assert harness.instance.disconnect(R1) == [PeekAnswer("q", second)]

    harness.connect(R1)
    assert harness.hear(R1, PeekResponse("r", first)) == []
    assert harness.instance.disconnect(R1) == []
    assert harness.instance.disconnect(R2) == []
    harness.connect(R1)
    assert harness.hear(R1, PeekResponse("r", ROWS)) == [PeekAnswer("r", ROWS)]


def test_must_answer_with_one_replicas_error_when_the_others_have_had_their_time() -> None:
    """A replica that hydrates for an hour answers no peek before its end, and the peek takes room meanwhile. A replica
    that failed and is gone does not count: it may answer when it is back."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    for uuid in ("p", "q"):
        harness.instance.peek(peek(uuid, 310))
    own = PeekError("the disk is full")
    assert harness.hear(R1, PeekResponse("p", own)) == []
    harness.now += PATIENCE_MS - 1
    assert harness.maintain() == []
    assert harness.hear(R2, PeekResponse("q", own)) == []
    harness.now += 1
    assert harness.maintain() == [PeekAnswer("p", own)]
    assert c.CancelPeek("p") in harness.sent(R2)
    assert harness.maintain() == []

    assert harness.instance.disconnect(R2) == []
    harness.now += PATIENCE_MS
    assert harness.maintain() == []
    assert harness.hear(R1, PeekResponse("q", ROWS)) == [PeekAnswer("q", ROWS)]
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.holds == {}


def test_must_wait_for_a_replica_that_is_at_the_answer_when_another_has_failed() -> None:
    """It has the index: a large answer may take it longer than the others are given."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    harness.hear(R2, Frontiers(INDEX, at(400), at(400), at(400)))
    harness.instance.peek(peek("p", 310))
    assert harness.hear(R1, PeekResponse("p", PeekError("the disk is full"))) == []
    harness.now += 10 * PATIENCE_MS
    assert harness.maintain() == []
    assert harness.hear(R2, PeekResponse("p", ROWS)) == [PeekAnswer("p", ROWS)]


def test_must_take_no_answer_of_a_replica_that_was_not_asked() -> None:
    """A targeted peek is its target's to answer."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    harness.instance.peek(peek("p", 310), R2)

    assert harness.hear(R1, PeekResponse("p", ROWS)) == []
    assert harness.hear(R2, PeekResponse("p", ROWS)) == [PeekAnswer("p", ROWS)]
