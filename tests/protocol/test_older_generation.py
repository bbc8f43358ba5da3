"""The older generation's commands, and the commands that a replica acts on in their place."""

from __future__ import annotations

import pytest

from tests.protocol.samples import dataflow
from tests.replica.plans import COLUMNS, transient
from tidemark_protocol.errors import StageViolation
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.conversation_stages import Stages
from tidemark_protocol.messages.legacy_protocol import LegacyTranslator
from tidemark_protocol.plan.dataflow import CopyToSink

EPOCH = Epoch(7, 2)
TIMELY = c.CreateTimely(EPOCH)
CREATE = c.CreateInstance(c.InstanceConfig("default", "/data"))
COMPLETE = c.InitializationComplete()
ALL = c.AllowAllWrites()
A, B = c.CreateDataflow(dataflow("a")), c.CreateDataflow(dataflow("b"))
COPY = c.CreateDataflow(transient("c", CopyToSink(COLUMNS, "/out", "csv")))
HELLO = c.Hello("nonce", EPOCH)


def writes(name: str) -> c.AllowWrites:
    return c.AllowWrites(GlobalId(f"{name}/v"), WriterTerm(EPOCH.leader_term))


def accept(commands: list[c.Command]) -> None:
    """Translate and check the commands as a replica's edge does."""
    translator, stages = LegacyTranslator(), Stages()
    for one in commands:
        for command in translator.translate(one):
            stages.accept(command)


CASES: dict[str, tuple[list[c.Command], list[c.Command]]] = {
    "creation": ([TIMELY, CREATE], [HELLO, CREATE]),
    "read-only: nothing may write": ([TIMELY, CREATE, A, COMPLETE, B], [HELLO, CREATE, A, COMPLETE, B]),
    "read-write: every sink that there is": (
        [TIMELY, CREATE, A, COMPLETE, B, ALL],
        [HELLO, CREATE, A, COMPLETE, B, writes("a"), writes("b")],
    ),
    "and every one that comes": ([TIMELY, CREATE, COMPLETE, ALL, A], [HELLO, CREATE, COMPLETE, A, writes("a")]),
    "allowed in the initialization": (
        [TIMELY, CREATE, A, ALL, COMPLETE, B],
        [HELLO, CREATE, A, writes("a"), COMPLETE, B, writes("b")],
    ),
    "a second time changes nothing": ([TIMELY, CREATE, A, ALL, ALL], [HELLO, CREATE, A, writes("a")]),
    "what was dropped is not named": (
        [TIMELY, CREATE, A, c.AllowCompaction(GlobalId("a/v"), Frontier.empty()), ALL],
        [HELLO, CREATE, A, c.AllowCompaction(GlobalId("a/v"), Frontier.empty())],
    ),
    "what is compacted is still there": (
        [TIMELY, CREATE, A, c.AllowCompaction(GlobalId("a/v"), Frontier.at(9)), ALL],
        [HELLO, CREATE, A, c.AllowCompaction(GlobalId("a/v"), Frontier.at(9)), writes("a")],
    ),
    "a copy needs no permission": ([TIMELY, CREATE, COPY, ALL], [HELLO, CREATE, COPY]),
}


@pytest.mark.parametrize(("commands", "meant"), CASES.values(), ids=CASES.keys())
def test_must_understand_the_older_generation(commands: list[c.Command], meant: list[c.Command]) -> None:
    """The translation is a conversation that our own stages accept."""
    translator, stages = LegacyTranslator(lambda: "nonce"), Stages()
    translated = [command for one in commands for command in translator.translate(one)]

    assert translated == meant
    for command in translated:
        stages.accept(command)


@pytest.mark.parametrize(
    "commands",
    [
        [TIMELY, HELLO],
        [TIMELY, CREATE, A, writes("a")],
        [HELLO, TIMELY],
        [HELLO, CREATE, ALL],
        [ALL],
    ],
    ids=["Hello", "per collection", "CreateTimely later", "for all", "for all, first"],
)
def test_must_not_mix_generations(commands: list[c.Command]) -> None:
    """A connection keeps the generation of its first command."""
    with pytest.raises(StageViolation):
        accept(commands)


def test_must_take_two_create_timely_for_a_violation() -> None:
    """CreateInstance is allowed once, in either generation."""
    with pytest.raises(StageViolation):
        accept([TIMELY, CREATE, TIMELY])


def test_each_connection_has_a_nonce_of_its_own() -> None:
    """CreateTimely has no nonce, so each connection gets a fresh one."""
    (first,), (second,) = (LegacyTranslator().translate(TIMELY) for _ in range(2))
    assert isinstance(first, c.Hello)
    assert isinstance(second, c.Hello)
    assert (first.nonce != second.nonce, first.epoch, Time(0)) == (True, second.epoch, 0)
