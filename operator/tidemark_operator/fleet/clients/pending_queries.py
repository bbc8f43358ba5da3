"""Callers that wait for the answer of a peek or a query.

peek(...)            ──► sent to replicas ──PeekAnswer──► the answer ──► let_go
query(dataflow, ...) ──► created ──► peek ──────────────────────────────► dropped
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Protocol

from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.controller_events import DataflowChanged, DataflowGone, Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.instance import Instance
from tidemark_operator.errors import NoReplicaAnswers
from tidemark_operator.fleet.clients.status_meaning import failure
from tidemark_operator.fleet.instance_counters import InstanceCounters
from tidemark_protocol import tracing
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.responses import PeekError, PeekRows, PeekStashed

Answer = PeekRows | PeekStashed | PeekError
_RESULTS = {PeekRows: "rows", PeekStashed: "stashed", PeekError: "error"}


class ClientHost(Protocol):
    """The instance that answers, and on which the dataflows of clients run."""

    core: Instance
    counts: InstanceCounters

    def notify(self, notices: list[Notice]) -> None: ...

    def flush(self) -> None: ...

    def create_transient(self, dataflow: Dataflow) -> None: ...

    def drop(self, owner: str) -> None: ...


class PendingQueries:
    """The callers of one instance."""

    def __init__(self, host: ClientHost) -> None:
        self._host = host
        self._answers: dict[str, asyncio.Future[PeekAnswer]] = {}
        # by owner: the peek of a query's dataflow, and its target, until replicas are done with it
        self._queries: dict[str, tuple[str, ReplicaId | None]] = {}

    async def peek(self, peek: Peek, target: ReplicaId | None = None) -> Answer:
        """The answer of any replica, or of the target. Cancelling this cancels the peek. A stashed answer must be
        read (result_stash_reader.py) and then let go. Raises: NoReplicaAnswers."""
        future: asyncio.Future[PeekAnswer] = asyncio.get_running_loop().create_future()
        self._answers[peek.uuid] = future
        result: Answer | None = None
        began = time.monotonic()
        try:
            self._host.notify(self._host.core.peek(peek, target))
            self._host.flush()
            answer = await future
            result = answer.result
            tracing.link(answer.trace_context)
            return result
        finally:
            self._host.counts.peeks.add(time.monotonic() - began, _RESULTS.get(type(result), "canceled"))
            del self._answers[peek.uuid]
            if not isinstance(result, PeekStashed):
                self.let_go(peek.uuid)

    def let_go(self, uuid: str) -> None:
        """The answer is not needed any more: cancel the peek, or forget what is stashed."""
        self._host.core.cancel_peek(uuid)
        self._host.flush()

    async def query(self, dataflow: Dataflow, peek: Peek, target: ReplicaId | None = None) -> Answer:
        """The answer of a dataflow that exists for this peek alone. Raises: NoReplicaAnswers."""
        self._queries[dataflow.owner] = (peek.uuid, target)
        try:
            self._host.create_transient(dataflow)
            return await self.peek(peek, target)
        finally:
            self._host.drop(dataflow.owner)

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it is about a pending query."""
        match notice:
            case PeekAnswer():
                self._answer(notice)
            case DataflowChanged(owner) if owner in self._queries:
                uuid, target = self._queries[owner]
                if why := failure(self._host.core.dataflows.collections_of(owner), target=target):
                    self._answer(PeekAnswer(uuid, PeekError(why)))
            case DataflowGone(owner) if owner in self._queries:
                del self._queries[owner]
            case _:
                return False
        return True

    def compute(self, uuids: Collection[str]) -> bool:
        """Whether one of these peeks has a dataflow of its own."""
        return any(uuid in uuids for uuid, _ in self._queries.values())

    def is_awaited(self, uuid: str) -> bool:
        """Whether a caller waits for the answer."""
        future = self._answers.get(uuid)
        return future is not None and not future.done()

    def fail(self, uuid: str, why: str) -> None:
        """Answer a peek with an error and drop its dataflow."""
        self._answer(PeekAnswer(uuid, PeekError(why)))
        self.let_go(uuid)
        for owner in [owner for owner, (peek, _) in self._queries.items() if peek == uuid]:
            self._host.drop(owner)

    def give_up(self, why: str) -> None:
        """Fail all peeks with NoReplicaAnswers: no replica is connected any more."""
        for future in self._answers.values():
            if not future.done():
                future.set_exception(NoReplicaAnswers(why))

    def abandon(self, why: str) -> None:
        """Answer all peeks with an error: the instance is gone."""
        for uuid in self._answers:
            self._answer(PeekAnswer(uuid, PeekError(why)))

    def _answer(self, answer: PeekAnswer) -> None:
        future = self._answers.get(answer.uuid)
        if future is not None and not future.done():
            future.set_result(answer)
