"""Every instance of every namespace, and the clock that maintains them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.lease_book import LEASE_MS, LeaseBook
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import QueryNotReady
from tidemark_operator.fleet.clients import quarantined_readers
from tidemark_operator.fleet.clients.subscription import Backlog
from tidemark_operator.fleet.clock import now_ms, steady_ms
from tidemark_operator.fleet.running_instance import InstanceListener, RunningInstance
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.commands import InstanceConfig

MAINTAIN_SECONDS = 1.0
LEASE_SECONDS = 600.0
"""The seconds behind the read policy for which clients' leases keep relations at most, unless the operator is told
otherwise."""


class Fleet:
    """The instances of all namespaces. The instances of a namespace share its shards: one may read what another
    writes. `listener` is set once, before anything runs. `lease_seconds`: how far behind the read policy leases hold;
    0: none is granted."""

    listener: InstanceListener

    def __init__(self, leadership: Leadership, lease_seconds: float = LEASE_SECONDS) -> None:
        self._leadership, self._backlog = leadership, Backlog()
        self._lease_ms = int(lease_seconds * 1000)
        self._stand_until_ms: int | None = None
        self._leases: dict[str, LeaseBook] = {}
        self._instances: dict[tuple[str, str], RunningInstance] = {}
        self._books: dict[str, ShardBook] = {}

    def book(self, namespace: str) -> ShardBook:
        """The shards of a namespace."""
        if namespace not in self._books:
            self._books[namespace] = ShardBook(self._stands)
        return self._books[namespace]

    def leases(self, namespace: str) -> LeaseBook | None:
        """The leases of a namespace; None where this operator grants none."""
        if not self._lease_ms:
            return None
        if namespace not in self._leases:
            find = partial(self._index, namespace)
            self._leases[namespace] = LeaseBook(self.book(namespace), find, self._lease_ms, steady_ms)
        return self._leases[namespace]

    def all_leases(self) -> list[tuple[str, LeaseBook]]:
        """The leases of each namespace that has had some."""
        return list(self._leases.items())

    def stand(self) -> None:
        """Advance no since until the clients of an earlier operator have had time to renew their leases. Call it before
        anything else, and again when clients can reach this operator."""
        if self._lease_ms:
            self._stand_until_ms = steady_ms() + LEASE_MS

    def go_on(self) -> None:
        """Advance sinces: there was no earlier operator."""
        self._stand_until_ms = None

    def require_grants(self) -> None:
        """Raises QueryNotReady where this operator may grant no leases: another one may lead, which advances sinces
        once the leases that were granted before it led have been renewed or have run out."""
        if not self._leadership.leads:
            raise QueryNotReady(
                "the operator has not renewed its own Lease for some seconds, so another one may lead, and would not "
                "know of this hold"
            )

    def _stands(self) -> bool:
        return self._stand_until_ms is not None and steady_ms() < self._stand_until_ms

    def _index(self, namespace: str, id: GlobalId) -> Collection | None:
        return next((found for running in self.of(namespace) if (found := running.index(id)) is not None), None)

    def get(self, namespace: str, name: str) -> RunningInstance | None:
        """The running instance, if there is one."""
        return self._instances.get((namespace, name))

    def ensure(self, namespace: str, config: InstanceConfig) -> RunningInstance:
        """The running instance. One with another configuration is removed first, and its replicas end themselves."""
        running = self.get(namespace, config.instance)
        if running is not None and running.config == config:
            return running
        self.remove(namespace, config.instance)
        book = self.book(namespace)
        end_readers = partial(self.end_readers, namespace)
        running = RunningInstance(namespace, config, book, self._leadership, self.listener, self._backlog, end_readers)
        self._instances[namespace, config.instance] = running
        return running

    def remove(self, namespace: str, name: str) -> None:
        """Disconnect the instance's replicas and end its clients."""
        running = self._instances.pop((namespace, name), None)
        if running is not None:
            for replica in list(running.replicas):
                running.detach(replica)
            for owner in running.core.dataflows.owners():
                running.drop(owner, cause=f"ComputeInstance {name} was deleted, or its storage is another")
            running.abandon()

    def of(self, namespace: str) -> list[RunningInstance]:
        """The instances of a namespace."""
        return [running for (place, _), running in self._instances.items() if place == namespace]

    def all(self) -> list[RunningInstance]:
        """The instances of all namespaces."""
        return list(self._instances.values())

    def end_readers(self, namespace: str, over: Iterable[ShardId], ending: EndMessage) -> None:
        """End subscribes, on any instance of the namespace, that read tables which no dataflow will write again."""
        tables = frozenset(over)
        for running in self.of(namespace):
            running.end_readers(tables, ending)

    async def run(self) -> None:
        """Maintain all instances once a second, until cancelled."""
        while True:
            self.maintain_leases()
            for running in list(self._instances.values()):
                running.maintain()
                quarantined_readers.tell(running)
            await asyncio.sleep(MAINTAIN_SECONDS)

    def maintain_leases(self) -> None:
        """End the leases that have run out. None does while this operator may grant none, so could renew none; nor does
        the wait for those of an earlier operator end."""
        if self._stand_until_ms is not None and not self._leadership.leads:
            self._stand_until_ms = steady_ms() + LEASE_MS
        elif not self._stands():
            self._stand_until_ms = None
        for leases in self._leases.values():
            if not self._leadership.leads:
                leases.prolong()
            leases.maintain(now_ms())

    async def close(self) -> None:
        """Close all connections; the replicas keep running."""
        for running in self._instances.values():
            await running.close()
