"""The older generation of the protocol, understood at the frame's edge and nowhere behind it.

    older                                          as it is meant
    CreateTimely(epoch)                            Hello(a fresh nonce, epoch)
    CreateInstance ... InitializationComplete      the same
    AllowAllWrites                                 AllowWrites(id, term) for each sink that there is
    CreateDataflow, in the stage read-write        CreateDataflow, AllowWrites(id, term) for each of its sinks

Its stages are four: what we call computation is divided by AllowAllWrites into read-only and read-write, and there is
no way back. (Permission that comes in the initialization opens the read-write stage together with it.) No state depends
on the difference, so a replica serves either kind of client, one after the other.

It knows no writer terms. The leadership term of its epoch stands for them: replicas of one controller share it, and a
controller that comes after fences the one before. Subscribes and copies never needed permission.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.ids import Epoch, GlobalId, WriterTerm
from tidemark_protocol.messages.commands import (
    AllowAllWrites,
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Hello,
    OlderCommand,
)
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardSink


def fresh_nonce() -> str:
    return f"older-{uuid.uuid4().hex}"


class OlderGeneration:
    """One connection's commands, from CreateTimely on, as we would have said them."""

    def __init__(self, nonce: Callable[[], str] = fresh_nonce) -> None:
        self._nonce = nonce
        self._epoch: Epoch | None = None
        self._created = self._writes = False
        self._sinks: list[GlobalId] = []

    def translate(self, command: Command) -> list[Command]:
        """Raises StageViolation for commands that this generation does not have, or that it may not say yet."""
        match command:
            case CreateTimely(epoch):
                self._epoch = epoch
                return [Hello(self._nonce(), epoch)]
            case Hello() | AllowWrites():
                raise StageViolation(f"{type(command).__name__} is not of the generation that begins with CreateTimely")
            case AllowAllWrites():
                return self._allow_writes()
            case CreateDataflow(dataflow):
                sinks = _sinks(dataflow)
                self._sinks += sinks
                return [command, *self._allowed(sinks if self._writes else [])]
            case AllowCompaction(id, frontier) if frontier.is_empty and id in self._sinks:
                self._sinks.remove(id)
            case CreateInstance():
                self._created = True
        return [command]

    def _allow_writes(self) -> list[Command]:
        """Once; a second time changes nothing. It may mean no command at all, so its stage is looked at here."""
        if not self._created:
            raise StageViolation("AllowAllWrites is not allowed in the stage creation")
        first, self._writes = not self._writes, True
        return self._allowed(self._sinks if first else [])

    def _allowed(self, sinks: list[GlobalId]) -> list[Command]:
        if not sinks:
            return []
        if self._epoch is None:
            raise StageViolation("writes are allowed to sinks before CreateTimely")
        return [AllowWrites(id, WriterTerm(self._epoch.leader_term)) for id in sinks]


class Interpreter:
    """Which generation a connection speaks: its first command tells, for good."""

    def __init__(self) -> None:
        self._older: OlderGeneration | None = None
        self._first = True

    def understand(self, command: Command) -> list[Command]:
        """What it means in our generation; raises StageViolation where two generations are mixed."""
        if self._first:
            self._first = False
            self._older = OlderGeneration() if isinstance(command, CreateTimely) else None
        if self._older is not None:
            return self._older.translate(command)
        if isinstance(command, OlderCommand):
            raise StageViolation(f"{type(command).__name__} is of the generation that begins with CreateTimely")
        return [command]


def _sinks(dataflow: DataflowDescription) -> list[GlobalId]:
    return [e.id for e in dataflow.sink_exports if isinstance(e.sink, ShardSink)]
