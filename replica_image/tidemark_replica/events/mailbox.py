"""What happens to the worker, one event after the other: the only way into the state's thread."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.messages.commands import CancelPeek, Command, IndexTarget, Peek
from tidemark_replica.events.client import Client


@dataclass(frozen=True)
class CommandsArrived:
    client: Client
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class ClientGone:
    client: Client


@dataclass(frozen=True)
class Call:
    """Something to do on the worker's thread: the end of a job, a question about the state. `urges`: maintenance may
    find something to do after it."""

    run: Callable[[], None]
    urges: bool = True


Event = CommandsArrived | ClientGone | Call


def urges(event: Event) -> bool:
    """Whether maintenance should come soon. Lookups on indexes need none, and there are hundreds a second."""
    match event:
        case CommandsArrived(_, commands):
            return not all(map(_is_lookup, commands))
        case Call():
            return event.urges
        case _:
            return True


def _is_lookup(command: Command) -> bool:
    return isinstance(command, CancelPeek) or (isinstance(command, Peek) and isinstance(command.target, IndexTarget))


class Mailbox:
    """A queue into the worker. Its writers bound it: a client has so many frames in flight, a pool so many jobs."""

    def __init__(self) -> None:
        # not a SimpleQueue: a signal that interrupts its timed get just before the end makes it wait for ever
        self._events: queue.Queue[Event] = queue.Queue()

    def post(self, event: Event) -> None:
        self._events.put(event)

    def call(self, run: Callable[[], None], *, urges: bool = True) -> None:
        self._events.put(Call(run, urges))

    def take(self, until: float) -> Event | None:
        """The next event, or None when the monotonic clock reaches `until` before one comes."""
        try:
            return self._events.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
