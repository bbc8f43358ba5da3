"""Subscribes and copies in the model: a replica's batches, and the client's view of them.

A collection has the same three rows at every third time, and at the as_of; batches may end between them. So which
updates lie between two positions is known, and a client that is told too much or too little is found out at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.replica.plans import COLUMNS, copies, shard
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import Waiting
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import (
    CopyToDone,
    CopyToDropped,
    CopyToResponse,
    Response,
    SubscribeBatch,
    SubscribeDropped,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import CopyToSink, DataflowDescription, ShardMetadata, SinkExport, SubscribeSink

if TYPE_CHECKING:
    from tests.model.simulation import Simulation

PARTS = (10, 20, 30)
Position = tuple[int, int]


def contents(as_of: int, snapshot: bool, lower: Position, upper: Position) -> list[Position]:
    """The updates of [lower, upper): times and parts."""
    times = range(max(as_of, lower[0]), min(upper[0], 10**6) + 1)
    shown = (t for t in times if (t == as_of and snapshot) or (t > as_of and t % 3 == 0))
    return [(t, part) for t in shown for part in PARTS if lower <= (t, part) < upper]


def subscribe_to(
    name: str, as_of: int, source: ShardMetadata | None, index: str | None, snapshot: bool, up_to: int | None
) -> DataflowDescription:
    """A dataflow whose one export is a subscribe."""
    plain = copies(name, as_of, source=source, imports_index=index)
    sink = SubscribeSink(COLUMNS, snapshot, None if up_to is None else Time(up_to))
    exports = (SinkExport(GlobalId(f"{name}-subscribe"), plain.objects[0].id, sink),)
    return replace(plain, sink_exports=exports, until=None if up_to is None else Time(up_to))


@dataclass
class Sender:
    """A replica's side: sends batches as far as its dataflow is, ending some of them within a time."""

    id: GlobalId
    sink: SubscribeSink
    as_of: int
    reached: Position = (0, 0)
    batches: int = 0

    def send(self, processed: int) -> Iterator[Response]:
        if self.sink.up_to is not None and processed >= self.sink.up_to:
            processed = EMPTY_SENTINEL
        if processed <= self.reached[0]:
            return
        self.batches += 1
        upper: Position = (processed, 0)
        if self.batches % 3 == 1 and self.reached < (processed - 1, 20) and self.as_of < processed < EMPTY_SENTINEL:
            upper = (processed - 1, 20)
        before = upper if self.sink.up_to is None else min(upper, (int(self.sink.up_to), 0))
        rows = json.dumps(contents(self.as_of, self.sink.with_snapshot, self.reached, before)).encode()
        lower, self.reached = self.reached, upper
        frontiers = Frontier.decode(lower[0]), Frontier.decode(upper[0])
        yield SubscribeResponse(self.id, SubscribeBatch(*frontiers, rows, None, lower[1], upper[1]))

    def drop(self) -> Response | None:
        if self.reached[0] == EMPTY_SENTINEL:
            return None
        return SubscribeResponse(self.id, SubscribeDropped(Frontier.at(self.reached[0])))


@dataclass
class Copier:
    """A replica's side of a copy: one answer, once its dataflow is beyond the as_of."""

    id: GlobalId
    as_of: int
    answered: bool = False

    def send(self, processed: int) -> Iterator[Response]:
        if not self.answered and processed > self.as_of:
            self.answered = True
            yield CopyToResponse(self.id, CopyToDone(self.as_of))

    def drop(self) -> Response | None:
        return None if self.answered else CopyToResponse(self.id, CopyToDropped())


@dataclass
class Client:
    """Checks each batch as it is told. `reads`: the owner of the index behind it; `orphaned`: that index is gone, and
    a replica that comes later cannot make it any more; `target`: the replica that tells it, of which `target_lost`
    says whether it has been lost."""

    owner: str
    description: DataflowDescription
    reads: str | None = None
    target: ReplicaId | None = None
    orphaned: bool = False
    target_lost: bool = False
    told: Position = (0, 0)
    failed: str | None = None
    copied: bool = False

    @property
    def is_copy(self) -> bool:
        return isinstance(self.description.sink_exports[0].sink, CopyToSink)

    def answer(self, answer: CopyAnswer) -> None:
        assert not self.copied, "a copy was answered twice"
        self.copied = True
        assert answer.result == CopyToDone(self.description.as_of) or self.orphaned, answer.result

    @property
    def sink(self) -> SubscribeSink:
        sink = self.description.sink_exports[0].sink
        assert isinstance(sink, SubscribeSink)
        return sink

    def take(self, news: SubscribeAdvanced) -> None:
        batch = news.batch
        lower, upper = (news.lower[0].encode(), news.lower[1]), (batch.upper.encode(), batch.upper_part)
        assert lower == self.told < upper, "a subscribe was told with a gap or an overlap"
        self.told = upper
        if batch.error is not None:
            self.failed = batch.error
            assert self.orphaned or self.target_lost, f"a subscribe failed: {batch.error}"
            return
        rows = [(int(t), int(part)) for t, part in json.loads(batch.updates)]
        new = [row for row in rows if row >= lower]
        before = upper if self.sink.up_to is None else min(upper, (int(self.sink.up_to), 0))
        expected = contents(self.description.as_of, self.sink.with_snapshot, lower, before)
        wrong = sorted(set(new) ^ set(expected))[:3]
        assert new == expected, f"of {self.owner} was told in [{lower}, {upper}) what is not so: {wrong} ..."


class Clients:
    """All that are subscribed now, to a table or to a Dataflow's index; copies too."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._clients: dict[GlobalId, Client] = {}

    @property
    def ids(self) -> list[GlobalId]:
        return list(self._clients)

    def subscribe(
        self,
        table: ShardId,
        reads: str | None,
        back: int,
        snapshot: bool,
        lasts: int | None,
        target: ReplicaId | None = None,
        *,
        copies: bool = False,
    ) -> None:
        """From a time on that can be read, `back` before the newest; to the table where it `reads` no index. `copies`:
        a copy of that time."""
        self._simulation.created += 1
        name, source = f"c{self._simulation.created}", shard(table, "") if reads is None else None
        index = None if reads is None else f"{reads}-index"
        try:
            known = next(self._simulation.inputs(subscribe_to(name, 0, source, index, True, None))).frontiers
        except Waiting:
            return
        if known is None or known.upper <= known.since:
            return
        as_of = max(known.since.encode(), known.upper.encode() - 1 - back)
        up_to = None if lasts is None else as_of + lasts
        description = subscribe_to(name, as_of, source, index, snapshot, up_to)
        if copies:
            (export,) = description.sink_exports
            export = replace(export, sink=CopyToSink(COLUMNS, "/copies", "csv"))
            description = replace(description, sink_exports=(export,), until=Time(as_of + 1))
        client = Client(name, description, reads, None if copies else target)
        client.target_lost = client.target is not None and client.target not in self._simulation.connections
        self._clients[description.export_ids[0]] = client
        self._simulation.instance.create(Dataflow(name, description, LAG_MS, target=client.target), WriterTerm(1))

    def lose(self, replica: ReplicaId) -> None:
        """Before the controller knows."""
        for client in self._clients.values():
            client.target_lost |= client.target == replica

    def unsubscribe(self, id: GlobalId) -> None:
        self._simulation.take(self._simulation.instance.drop(self._clients.pop(id).owner))

    def orphan(self, reads: str) -> None:
        for client in self._clients.values():
            client.orphaned |= client.reads == reads

    def take(self, notice: object) -> None:
        if isinstance(notice, SubscribeAdvanced) and notice.id in self._clients:
            self._clients[notice.id].take(notice)
        if isinstance(notice, CopyAnswer) and notice.id in self._clients:
            self._clients[notice.id].answer(notice)

    def settle(self) -> None:
        """Each has been told all there is, or that its index is gone; then all of them go."""
        for client in self._clients.values():
            if client.is_copy:
                assert client.copied, f"{client.owner} was not answered"
                continue
            ended = client.told[0] == EMPTY_SENTINEL
            assert ended or not client.orphaned, f"{client.owner} was not told of its end"
            if not client.orphaned:
                upper = self._complete(client)
                assert client.told[0] >= upper, f"{client.owner} was told up to {client.told}, not to {upper}"
        for id in self.ids:
            self.unsubscribe(id)

    def _complete(self, client: Client) -> int:
        sources = client.description.source_imports
        if sources:
            upper = self._simulation.shards[sources[0].shard.shard_id].upper
        else:
            upper = self._simulation.complete(str(client.reads))
        return EMPTY_SENTINEL if client.sink.up_to is not None and client.sink.up_to <= upper else upper
