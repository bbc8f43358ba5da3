"""The older generation of the protocol: translated at the edge of a connection, so that nothing behind knows it.

    older command                                  translation
    CreateTimely(epoch)                            Hello(a fresh nonce, epoch)
    AllowAllWrites                                 AllowWrites(id, term) for each shard sink that exists
    CreateDataflow, once writes are allowed        CreateDataflow, AllowWrites(id, term) for each of its shard sinks
    every other command                            itself

The older generation has no writer terms: the leader term of the epoch stands for them, so the replicas of one
controller share a term, and a later controller fences an earlier one. AllowAllWrites is irreversible.
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
)
from tidemark_protocol.plan.dataflow import ShardSink


def fresh_nonce() -> str:
    return f"older-{uuid.uuid4().hex}"


class LegacyTranslator:
    """Translates the commands of one connection. The first command decides which generation the client speaks."""

    def __init__(self, nonce: Callable[[], str] = fresh_nonce) -> None:
        self._nonce = nonce
        self._is_first = True
        self._epoch: Epoch | None = None
        """The epoch of a client of the older generation; None for a client of ours."""
        self._is_created = self._allows_writes = False
        self._sinks: list[GlobalId] = []

    def translate(self, command: Command) -> list[Command]:
        """The command in our generation.

        Raises:
            StageViolation: the client mixes both generations, or allows writes before CreateInstance.
        """
        is_first, self._is_first = self._is_first, False
        if is_first and isinstance(command, CreateTimely):
            self._epoch = command.epoch
        if self._epoch is not None:
            return self._translate_older(command, self._epoch)
        if isinstance(command, CreateTimely | AllowAllWrites):
            raise StageViolation(f"{type(command).__name__} belongs to connections that begin with CreateTimely")
        return [command]

    def _translate_older(self, command: Command, epoch: Epoch) -> list[Command]:
        term = WriterTerm(epoch.leader_term)
        match command:
            case CreateTimely(own_epoch):
                return [Hello(self._nonce(), own_epoch)]
            case Hello() | AllowWrites():
                raise StageViolation(f"{type(command).__name__} is not allowed on a connection of the older generation")
            case AllowAllWrites():
                if not self._is_created:
                    raise StageViolation("AllowAllWrites is not allowed before CreateInstance")
                allowed, self._allows_writes = self._allows_writes, True
                return [] if allowed else [AllowWrites(id, term) for id in self._sinks]
            case CreateDataflow(dataflow):
                sinks = [e.id for e in dataflow.sink_exports if isinstance(e.sink, ShardSink)]
                self._sinks += sinks
                return [command, *(AllowWrites(id, term) for id in sinks if self._allows_writes)]
            case AllowCompaction(id, frontier) if frontier.is_empty and id in self._sinks:
                self._sinks.remove(id)
            case CreateInstance():
                self._is_created = True
        return [command]
