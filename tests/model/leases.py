"""Leases in the model: what a client holds stays until its lease ends, whatever happens to operators and replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.model.shards import Violation
from tidemark_operator.controller.frontiers.lease_book import LEASE_MS, LeaseBook, LeaseTarget
from tidemark_operator.errors import TimeNotReadable
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import IndexTarget, ShardTarget
from tidemark_protocol.plan.dataflow import ShardMetadata

if TYPE_CHECKING:
    from tests.model.simulation import Simulation

MOST_MS = 1_000


@dataclass
class Promise:
    """The promise to a client: `id` can be read at `time` before `until_ms`."""

    id: GlobalId
    time: Time
    until_ms: int


class Clients:
    """The clients that have leases. `book`: of the operator that there is."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.promises: dict[str, Promise] = {}
        self._numbers = self._ahead_ms = 0
        self.begin()

    def begin(self) -> None:
        """A new operator knows no leases."""
        simulation = self._simulation
        self.book = LeaseBook(
            simulation.book, simulation.instance.dataflows.index, MOST_MS, lambda: simulation.now + self._ahead_ms
        )

    def take(self, id: GlobalId, back: int) -> None:
        """A lease at a time that can be read, `back` before the newest."""
        upper, since = self._frontiers(id)
        if upper is None or since is None or upper <= since:
            return
        self._numbers += 1
        self._grant(f"lease {self._numbers}", id, Time(max(since, upper - 1 - back)))

    def renew(self, lease: str, by: int) -> None:
        """At the same time, or a later one."""
        promise = self.promises[lease]
        self._grant(lease, promise.id, Time(promise.time + by))

    def end(self, lease: str) -> None:
        del self.promises[lease]
        self.book.end([lease])

    def end_all(self) -> None:
        for lease in list(self.promises):
            self.end(lease)
        self._ahead_ms = LEASE_MS
        self.book.maintain(self._simulation.now)

    def check(self) -> None:
        """Every time that a lease holds can be read."""
        for lease, promise in list(self.promises.items()):
            if promise.until_ms <= self._simulation.now or self._may_be_gone(promise):
                del self.promises[lease]
                continue
            _, since = self._frontiers(promise.id)
            if since is not None and since > promise.time:
                raise Violation(f"{lease} holds {promise.id} at {promise.time}, and it was compacted to {since}")
            table = self._simulation.shards.get(ShardId(promise.id))
            if table is not None and table.since > promise.time:
                raise Violation(f"{lease} holds {promise.id} at {promise.time}, and its files begin at {table.since}")

    def _grant(self, lease: str, id: GlobalId, time: Time) -> None:
        try:
            self.book.grant(lease, "anne", time, {id: self._target(id)}, self._simulation.now)
        except TimeNotReadable:
            self.promises.pop(lease, None)
        else:
            self.promises[lease] = Promise(id, time, self._simulation.now + LEASE_MS)

    def _may_be_gone(self, promise: Promise) -> bool:
        """Whether the relation was dropped or begins later, as no replica had it any more; or the bound is reached."""
        upper, _ = self._frontiers(promise.id)
        index = self._simulation.instance.dataflows.index(promise.id)
        is_table = ShardId(promise.id) in self._simulation.shards
        begins_later = not is_table and (index is None or index.as_of > promise.time)
        return begins_later or (upper is not None and upper - promise.time > MOST_MS)

    def _frontiers(self, id: GlobalId) -> tuple[int | None, int | None]:
        """Upper and since, as far as they are known."""
        if (index := self._simulation.instance.dataflows.index(id)) is not None:
            return None if index.write is None else index.write.encode(), index.since.encode()
        known = shard.readable if (shard := self._simulation.book.get(ShardId(id))) is not None else None
        return (None, None) if known is None else (known.upper.encode(), known.since.encode())

    def _target(self, id: GlobalId) -> LeaseTarget:
        if ShardId(id) in self._simulation.shards:
            return ShardTarget(id, ShardMetadata(ShardId(id), str(id), ()))
        return IndexTarget(id)
