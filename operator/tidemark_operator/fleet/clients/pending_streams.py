"""Clients that wait for a subscribe or a copy.

subscribe(dataflow) ──► created ──SubscribeAdvanced──► Subscription ──► gateway ──► dropped when the client goes
copy(dataflow)      ──► created ──CopyAnswer─────────► the answer               ──► dropped
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.controller_events import DataflowChanged, DataflowGone, Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import SubscribeEnded
from tidemark_operator.fleet.clients.pending_queries import ClientHost
from tidemark_operator.fleet.clients.status_meaning import failure
from tidemark_operator.fleet.clients.subscription import Backlog, Subscription
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.responses import CopyToDone, CopyToFailed

TRIES = 3
"""A step that has failed so often on every replica ends its client."""


class PendingStreams:
    """The subscribes and copies of one instance."""

    def __init__(self, host: ClientHost, backlog: Backlog) -> None:
        self._host, self._backlog = host, backlog
        self._owners: set[str] = set()
        self._subscriptions: dict[GlobalId, tuple[str, Subscription]] = {}
        self._copies: dict[GlobalId, tuple[str, asyncio.Future[CopyToDone | CopyToFailed]]] = {}

    @property
    def subscribes(self) -> int:
        """The number of subscribes."""
        return len(self._subscriptions)

    @property
    def copies(self) -> int:
        """The number of copies."""
        return len(self._copies)

    def beginning_owners(self, replica: ReplicaId) -> list[str]:
        """Owners of the client dataflows that the replica is hydrating."""
        return [owner for owner in self.waiting_owners() if self._host.core.dataflows.is_beginning(owner, replica)]

    def is_awaited(self, owner: str) -> bool:
        """Whether a client waits for more of this owner's dataflow."""
        return owner in self.waiting_owners()

    def fail(self, owner: str, why: str) -> None:
        """End the client of this owner's dataflow with a message, and drop the dataflow."""
        self._fail(why, lambda of: of == owner)
        self._host.drop(owner)

    @asynccontextmanager
    async def subscribe(self, dataflow: Dataflow) -> AsyncIterator[Subscription]:
        """A context whose value yields the batches. The dataflow is dropped when the context ends."""
        subscription = Subscription(lambda: self._host.drop(dataflow.owner), self._backlog)
        (id,) = dataflow.description.export_ids
        self._subscriptions[id] = (dataflow.owner, subscription)
        try:
            self._create(dataflow)
            yield subscription
        finally:
            del self._subscriptions[id]
            subscription.close()
            self._host.drop(dataflow.owner)

    async def copy(self, dataflow: Dataflow) -> CopyToDone | CopyToFailed:
        """The answer of a copy. Cancelling this drops the dataflow."""
        future: asyncio.Future[CopyToDone | CopyToFailed] = asyncio.get_running_loop().create_future()
        (id,) = dataflow.description.export_ids
        self._copies[id] = (dataflow.owner, future)
        try:
            self._create(dataflow)
            return await future
        finally:
            del self._copies[id]
            self._host.drop(dataflow.owner)

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it is about a client's dataflow."""
        match notice:
            case SubscribeAdvanced(id):
                if found := self._subscriptions.get(id):
                    found[1].put(notice)
                return True
            case CopyAnswer(id, result):
                if waiting := self._copies.get(id):
                    _answer(waiting[1], result)
                return True
            case DataflowChanged(owner) if owner in self._owners:
                if why := failure(self._host.core.dataflows.collections_of(owner), TRIES):
                    self._fail(why, lambda of: of == owner)
                return True
            case DataflowGone(owner) if owner in self._owners:
                self._owners.discard(owner)
                return True
            case _:
                return False

    def abandon(self, why: str) -> None:
        """End all clients with a message: the instance is gone."""
        self._fail(why, lambda _: True)

    def waiting_owners(self) -> list[str]:
        """Owners of the dataflows whose clients wait for more."""
        subscribes = [owner for owner, subscription in self._subscriptions.values() if subscription.failure is None]
        return subscribes + [owner for owner, future in self._copies.values() if not future.done()]

    def give_up_copies(self, why: str) -> None:
        """Fail all copies: no replica is connected any more."""
        for _, future in self._copies.values():
            _answer(future, CopyToFailed(why))

    def _create(self, dataflow: Dataflow) -> None:
        self._host.create_transient(dataflow)
        self._owners.add(dataflow.owner)

    def _fail(self, why: str, wanted: Callable[[str], bool]) -> None:
        for subscription in [s for owner, s in self._subscriptions.values() if wanted(owner)]:
            subscription.fail(SubscribeEnded(why))
        for future in [f for owner, f in self._copies.values() if wanted(owner)]:
            _answer(future, CopyToFailed(why))


def _answer(future: asyncio.Future[CopyToDone | CopyToFailed], result: CopyToDone | CopyToFailed) -> None:
    if not future.done():
        future.set_result(result)
