"""Every instance of every namespace, and the clock that maintains them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.fleet.clients import quarantined_readers
from tidemark_operator.fleet.clients.subscription import Backlog
from tidemark_operator.fleet.running_instance import InstanceListener, RunningInstance
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.commands import InstanceConfig

MAINTAIN_SECONDS = 1.0


class Fleet:
    """The instances of all namespaces. The instances of a namespace share its shards: one may read what another
    writes. `listener` is set once, before anything runs."""

    listener: InstanceListener

    def __init__(self, leadership: Leadership) -> None:
        self._leadership, self._backlog = leadership, Backlog()
        self._instances: dict[tuple[str, str], RunningInstance] = {}
        self._books: dict[str, ShardBook] = {}

    def book(self, namespace: str) -> ShardBook:
        """The shards of a namespace."""
        return self._books.setdefault(namespace, ShardBook())

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
            for running in list(self._instances.values()):
                running.maintain()
                quarantined_readers.tell(running)
            await asyncio.sleep(MAINTAIN_SECONDS)

    async def close(self) -> None:
        """Close all connections; the replicas keep running."""
        for running in self._instances.values():
            await running.close()
