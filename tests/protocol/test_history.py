"""The command history replays the commands of live dataflows, in order."""

from __future__ import annotations

import pytest

from tests.protocol.samples import dataflow
from tidemark_protocol.errors import StageViolation
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.command_history import History
from tidemark_protocol.messages.conversation_stages import ConversationStage, Stages
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import MapFilterProject

D = dataflow("d", as_of=3)
INDEX, VIEW = GlobalId("d/i"), GlobalId("d/v")
CREATE, COMPLETE = c.CreateDataflow(D), c.InitializationComplete()


def peek(uuid: str) -> c.Peek:
    return c.Peek(uuid, c.IndexTarget(INDEX), Time(4), MapFilterProject(()), Finishing(), ())


def replayed(*commands: c.Command) -> list[c.Command]:
    history = History()
    for command in commands:
        history.push(command)
    return list(history.replay())


def at(time: int) -> Frontier:
    return Frontier.at(time)


CASES: dict[str, tuple[list[c.Command], list[c.Command]]] = {
    "nothing said": ([], []),
    "a peek and its cancellation annihilate": ([CREATE, peek("p"), c.CancelPeek("p")], [CREATE]),
    "as_of moves to the least of the exports' compaction": (
        [CREATE, c.AllowCompaction(INDEX, at(9)), c.AllowCompaction(VIEW, at(7))],
        [c.CreateDataflow(D.with_as_of(at(7))), c.AllowCompaction(INDEX, at(9))],
    ),
    "one export at its as_of holds the dataflow there": (
        [CREATE, c.AllowCompaction(INDEX, at(9))],
        [CREATE, c.AllowCompaction(INDEX, at(9))],
    ),
    "dropped by all exports, the dataflow is gone": (
        [
            CREATE,
            c.Schedule(INDEX),
            c.AllowCompaction(INDEX, Frontier.empty()),
            c.AllowCompaction(VIEW, Frontier.empty()),
        ],
        [],
    ),
    "one of two exports dropped": (
        [CREATE, c.Schedule(INDEX), c.Schedule(VIEW), c.AllowCompaction(INDEX, Frontier.empty())],
        [CREATE, c.Schedule(VIEW), c.AllowCompaction(INDEX, Frontier.empty())],
    ),
    "peeks come before compaction, writes after": (
        [
            CREATE,
            c.AllowWrites(VIEW, WriterTerm(1)),
            c.AllowCompaction(INDEX, at(9)),
            peek("p"),
            c.Schedule(VIEW),
            COMPLETE,
        ],
        [
            CREATE,
            c.Schedule(VIEW),
            peek("p"),
            c.AllowCompaction(INDEX, at(9)),
            c.AllowWrites(VIEW, WriterTerm(1)),
            COMPLETE,
        ],
    ),
    "configuration is merged": (
        [c.UpdateConfiguration(5, {"a": "1"}, 3), c.UpdateConfiguration(None, {"b": "2"}), c.UpdateConfiguration(7)],
        [c.UpdateConfiguration(7, {"a": "1", "b": "2"}, 3)],
    ),
    "commands about unknown ids change nothing": ([c.Schedule(INDEX), c.AllowWrites(VIEW, WriterTerm(1))], []),
}


@pytest.mark.parametrize(("commands", "expected"), CASES.values(), ids=CASES.keys())
def test_history_replays(commands: list[c.Command], expected: list[c.Command]) -> None:
    """The replay equals the reduced commands."""
    assert replayed(*commands) == expected


def test_compaction_never_goes_back() -> None:
    """A late AllowCompaction with an earlier frontier does not lower it."""
    both = [c.AllowCompaction(INDEX, at(9)), c.AllowCompaction(VIEW, at(9)), c.AllowCompaction(INDEX, at(5))]

    assert replayed(CREATE, *both) == [c.CreateDataflow(D.with_as_of(at(9)))]


def test_a_lagging_replica_begins_earlier_and_learns_of_compactions() -> None:
    """A resumed dataflow is created at its own time, then compacted to the common as_of."""
    history = History()
    for command in (CREATE, c.AllowCompaction(INDEX, at(9))):
        history.push(command)

    created, *compacted = history.replay(dict.fromkeys(D.export_ids, at(2)))
    assert created == c.CreateDataflow(D.with_as_of(at(2)))
    assert set(compacted) == {c.AllowCompaction(INDEX, at(9)), c.AllowCompaction(VIEW, at(3))}
    assert list(history.replay(dict.fromkeys(D.export_ids, at(100)))) == list(history.replay())


def test_must_creation_commands_come_first_and_in_order() -> None:
    """The stages advance in order, and the replica may respond after CreateInstance alone."""
    stages = Stages()

    with pytest.raises(StageViolation):
        stages.accept(CREATE)
    stages.accept(c.Hello("n", Epoch(1, 1)))
    with pytest.raises(StageViolation):
        stages.accept(COMPLETE)
    assert not stages.may_respond
    stages.accept(c.CreateInstance(c.InstanceConfig("i", "/d")))
    assert stages.may_respond
    assert stages.accept(CREATE) is ConversationStage.INITIALIZATION
    assert stages.accept(COMPLETE) is ConversationStage.COMPUTATION


@pytest.mark.parametrize("again", [c.Hello("n", Epoch(1, 1)), c.CreateInstance(c.InstanceConfig("i", "/d")), COMPLETE])
def test_must_creation_and_completion_come_once(again: c.Command) -> None:
    """A command that is out of place is refused, and the stage stays."""
    stages = Stages()
    for command in (c.Hello("n", Epoch(1, 1)), c.CreateInstance(c.InstanceConfig("i", "/d")), COMPLETE):
        stages.accept(command)

    with pytest.raises(StageViolation):
        stages.accept(again)
    assert stages.stage is ConversationStage.COMPUTATION
