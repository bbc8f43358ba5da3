"""Subscribes and copies: dataflows that exist for one client.

    SubscribeResponse ─► Subscribes ─┬─► how far that replica is, as `Frontiers` reports of any other export
    CopyToResponse    ─► Copies     ─┴─► what the client receives

So holds, compaction and the end of a dropped dataflow are those of every collection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.answers.copies import Copies, CopyAnswer
from tidemark_operator.controller.answers.subscribes import ProtocolViolation, Recipients, SubscribeAdvanced, Subscribes
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.responses import CopyToDropped, CopyToResponse, Frontiers, SubscribeResponse
from tidemark_protocol.plan.dataflow import CopyToSink, DataflowDescription, SubscribeSink

News = SubscribeAdvanced | CopyAnswer
LAG_MS = 1
"""The read policy of a client's dataflow, in milliseconds: a subscribe resumes where its client is, and no earlier."""


class ClientDataflows:
    """All subscribes and copies of an instance."""

    def __init__(self) -> None:
        self._subscribes, self._copies = Subscribes(), Copies()

    def add(self, description: DataflowDescription, target: ReplicaId | None = None) -> None:
        """Add the subscribe or copy of a dataflow. `target`: the one replica whose stream counts."""
        for export in description.sink_exports:
            if isinstance(export.sink, SubscribeSink):
                self._subscribes.add(export.id, target)
            elif isinstance(export.sink, CopyToSink):
                self._copies.add(export.id)

    def fail(self, description: DataflowDescription, ending: EndMessage) -> Sequence[News]:
        """End the client's dataflow with a message."""
        ids = description.export_ids
        subscribes = self._subscribes.fail(filter(self._subscribes.has, ids), ending.of_subscribe)
        return [*subscribes, *self._copies.fail(ids, ending.of_copy())]

    def has(self, id: GlobalId) -> bool:
        """Whether the export is a subscribe or a copy."""
        return self._subscribes.has(id) or self._copies.has(id)

    def prune(self, is_there: Callable[[GlobalId], bool]) -> None:
        """Forget those whose collection is gone."""
        self._subscribes.prune(is_there)
        self._copies.prune(is_there)

    def disconnected(self, replica: ReplicaId, recipients: Recipients) -> Sequence[News]:
        """A replica's connection ended: return what its clients must be told."""
        return [*self._subscribes.forget(replica, recipients), *self._copies.forget(replica, recipients)]

    def hear(
        self, replica: ReplicaId, response: SubscribeResponse | CopyToResponse, recipients: Recipients, *, dropped: bool
    ) -> tuple[Frontiers, Sequence[News]] | None:
        """Take a response; return the replica's frontiers, and news for the client; None where its dataflow is gone.
        `dropped`: whether the dataflow was dropped. Raises: ProtocolViolation."""
        id = response.id
        if isinstance(response, CopyToResponse):
            if not self._copies.has(id):
                return None
            if isinstance(response.result, CopyToDropped) and not dropped:
                raise ProtocolViolation(f"replica {replica} dropped copy {id} without being told to")
            return _all_at(id, Frontier.empty()), self._copies.hear(replica, response, recipients)
        if not self._subscribes.has(id):
            return None
        reached, news = self._subscribes.hear(replica, response, recipients, dropped=dropped)
        return _all_at(id, reached), news


def _all_at(id: GlobalId, frontier: Frontier) -> Frontiers:
    return Frontiers(id, frontier, frontier, frontier)
