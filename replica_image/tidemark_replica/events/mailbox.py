"""The queue of events for the command loop, the only way into its thread."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.messages.commands import CancelPeek, Command, IndexTarget, Peek
from tidemark_replica.events.client import Client


@dataclass(frozen=True)
class CommandsArrived:
    """A frame of checked commands from an admitted client."""

    client: Client
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class ClientDisconnected:
    """The client's stream has ended."""

    client: Client


@dataclass(frozen=True)
class LoopCall:
    """A function to run on the command loop: the continuation of a job, or a question about the state.
    `needs_maintenance`: the call may have made new work possible."""

    run: Callable[[], None]
    needs_maintenance: bool = True


Event = CommandsArrived | ClientDisconnected | LoopCall


def needs_maintenance(event: Event) -> bool:
    """Whether maintenance should follow soon. Lookups on indexes, of which there are hundreds a second, need none."""
    match event:
        case CommandsArrived(_, commands):
            return not all(map(_is_lookup, commands))
        case LoopCall():
            return event.needs_maintenance
        case _:
            return True


def _is_lookup(command: Command) -> bool:
    return isinstance(command, CancelPeek) or (isinstance(command, Peek) and isinstance(command.target, IndexTarget))


class Mailbox:
    """The queue. Its writers bound it: each client has a limited number of frames in flight, each pool a limited number
    of jobs."""

    def __init__(self) -> None:
        # not a SimpleQueue: a signal that interrupts its timed `get` just before the timeout makes it block for ever
        self._events: queue.Queue[Event] = queue.Queue()

    def post(self, event: Event) -> None:
        self._events.put(event)

    def call(self, run: Callable[[], None], *, needs_maintenance: bool = True) -> None:
        self._events.put(LoopCall(run, needs_maintenance))

    def take(self, until: float) -> Event | None:
        """The next event, or None when the monotonic clock reaches `until` before one comes."""
        try:
            return self._events.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
