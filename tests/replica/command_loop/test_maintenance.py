"""The command loop maintains soon after events that may need it, and not after lookups."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.replica.plans import shard
from tests.waiting import BOUND
from tidemark_protocol.ids import Epoch, GlobalId, Time
from tidemark_protocol.messages.commands import CancelPeek, Command, Hello, IndexTarget, Peek, Schedule, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.command_loop import loop
from tidemark_replica.command_loop.compute_state import ComputeState
from tidemark_replica.command_loop.loop import AFTER_EVENT_SECONDS, INTERVAL_SECONDS, CommandLoop
from tidemark_replica.events.client import Client
from tidemark_replica.events.jobs import Done, Jobs, Outcome
from tidemark_replica.events.mailbox import CommandsArrived, Event, LoopCall, Mailbox
from tidemark_replica.events.outbox import Outbox

SOON, LATER = 100.0 + AFTER_EVENT_SECONDS, 100.0 + INTERVAL_SECONDS


def peek(target: IndexTarget | ShardTarget) -> Peek:
    return Peek("p", target, Time(1), MapFilterProject(()), Finishing(), ())


LOOKUP = peek(IndexTarget(GlobalId("i")))


def event_of(*commands: Command) -> Event:
    """By a client that has left: nobody does anything about it."""
    client = Client(Hello("n", Epoch(1, 1)), Outbox())
    client.acquire_frame()
    return CommandsArrived(client, commands)


class Scripted(Mailbox):
    """Gives nothing, then the event, then nothing; keeps until when each was waited for."""

    def __init__(self, event: Event, stop: Callable[[], None]) -> None:
        super().__init__()
        self._script: list[Event | None] = [None, event, None]
        self._stop, self.untils = stop, list[float]()

    def take(self, until: float) -> Event | None:
        self.untils.append(until)
        if len(self._script) == 1:
            self._stop()
        return self._script.pop(0)


class State:
    maintained = 0

    def maintain(self) -> None:
        self.maintained += 1


@pytest.mark.parametrize(
    ("event", "until"),
    [
        (event_of(LOOKUP, CancelPeek("p")), LATER),
        (event_of(LOOKUP, Schedule(GlobalId("d"))), SOON),
        (event_of(peek(ShardTarget(GlobalId("s"), shard("s")))), SOON),
        (LoopCall(lambda: None, needs_maintenance=False), LATER),
        (LoopCall(lambda: None), SOON),
    ],
    ids=[
        "lookups",
        "another among them",
        "of a table, which has to be looked at",
        "the end of one",
        "of any other job",
    ],
)
def test_lookups_bring_no_maintenance_forward(event: Event, until: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes at its interval; everything else has it soon."""
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 100.0))
    state = State()
    mailbox = Scripted(event, lambda: made.stop())
    made = CommandLoop(mailbox, cast(ComputeState, state), lambda: False)
    made.run()

    assert mailbox.untils == pytest.approx([100.0, LATER, until])
    assert state.maintained == 1


@pytest.mark.parametrize("needs_maintenance", [False, True])
def test_a_pool_says_whether_its_ends_are_news(needs_maintenance: bool) -> None:
    """The ends of peeks are not."""
    mailbox, ends = Mailbox(), list[Outcome[Any]]()
    jobs = Jobs(mailbox, "test", 1, needs_maintenance=needs_maintenance)
    jobs.submit("job", lambda: 7, ends.append)
    event = mailbox.take(time.monotonic() + BOUND)
    jobs.shutdown()

    assert isinstance(event, LoopCall)
    assert event.needs_maintenance == needs_maintenance
    event.run()
    assert ends == [Done(7)]
