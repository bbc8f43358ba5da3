"""Subscribes under way: the streams of all replicas merged into one, without gap or overlap.

    r1    [0 ........ 17) [17 .. (17,h)) †           each replica's batches are contiguous, from the minimum time on,
    r2    [0 .... 12) [12 ................ 21)       and all replicas have the same updates at the same time
    sent  [0 ........ 17) [17 .. (17,h)) [(17,h) .. 21)

A batch that ends beyond what the client has received is forwarded from there on; the gateway leaves out what is before
its `lower`. So the replica that is ahead leads, and where it dies another continues, also in the middle of a time. A
stream with a gap, or one that a replica dropped without being told to, ends the replica's connection: on the next one
the stream begins again. An error ends the subscribe once every replica that received it has one; an error that makes
what was sent void ends it at once, since a replica that has not seen the change, or began after it, would go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.responses import SubscribeBatch, SubscribeDropped, SubscribeResponse

Position = tuple[Frontier, int]
Recipients = Callable[[GlobalId], Collection[ReplicaId]]
"""The connected replicas that were sent a subscribe or copy."""
_START: Position = (Frontier.minimum(), 0)
_END: Position = (Frontier.empty(), 0)


class ProtocolViolation(Exception):
    """A replica broke the protocol of a stream; its connection must end."""


@dataclass(frozen=True)
class SubscribeAdvanced:
    """The next batch for the client. It may hold updates before `lower`, which the client has received."""

    id: GlobalId
    batch: SubscribeBatch
    lower: Position


@dataclass
class _Subscribe:
    target: ReplicaId | None = None
    delivered: Position = _START
    sent: dict[ReplicaId, Position] = field(default_factory=dict)
    """The position up to which each replica has sent: the end, also where that was an error, or last words."""
    failed: dict[ReplicaId, str] = field(default_factory=dict)


class Subscribes:
    """All subscribes that are under way."""

    def __init__(self) -> None:
        self._subscribes: dict[GlobalId, _Subscribe] = {}

    def add(self, id: GlobalId, target: ReplicaId | None = None) -> None:
        """Add a subscribe. `target`: the one replica whose stream the client receives."""
        self._subscribes[id] = _Subscribe(target)

    def has(self, id: GlobalId) -> bool:
        """Whether the export is a subscribe that is under way."""
        return id in self._subscribes

    def prune(self, is_there: Callable[[GlobalId], bool]) -> None:
        """Forget subscribes whose collection is gone."""
        self._subscribes = {id: subscribe for id, subscribe in self._subscribes.items() if is_there(id)}

    def hear(
        self, replica: ReplicaId, response: SubscribeResponse, recipients: Recipients, *, dropped: bool
    ) -> tuple[Frontier, list[SubscribeAdvanced]]:
        """Take a batch; return how far the replica is, and batches for the client. `dropped`: whether the replica
        was told to drop the subscribe. Raises: ProtocolViolation."""
        subscribe, batch = self._subscribes[response.id], response.result
        before = subscribe.sent.get(replica, _START)
        if isinstance(batch, SubscribeDropped):
            if not dropped:
                raise ProtocolViolation(f"replica {replica} dropped subscribe {response.id} without being told to")
            subscribe.sent[replica] = _END
            return Frontier.empty(), []
        if batch.error is not None and batch.is_void and subscribe.target in (None, replica):
            subscribe.failed[replica], subscribe.sent[replica] = batch.error, _END
            return Frontier.empty(), self.fail([response.id], _saying(batch.error), is_void=True)
        lower, upper = (batch.lower, batch.lower_part), (batch.upper, batch.upper_part)
        if lower != before or upper <= lower:
            got = f"[{_format_position(lower)}, {_format_position(upper)}) after {_format_position(before)}"
            raise ProtocolViolation(
                f"batches of subscribe {response.id} of replica {replica} are not contiguous: {got}"
            )
        if batch.error is not None:
            subscribe.failed[replica], subscribe.sent[replica] = batch.error, _END
            return Frontier.empty(), self._all_failed(recipients)
        subscribe.sent[replica] = upper
        if upper <= subscribe.delivered or subscribe.target not in (None, replica):
            return batch.upper, []
        news = SubscribeAdvanced(response.id, batch, subscribe.delivered)
        subscribe.delivered = upper
        return batch.upper, [news]

    def forget(self, replica: ReplicaId, recipients: Recipients) -> list[SubscribeAdvanced]:
        """The replica's connection ended; on the next one its streams begin again. Return the ends of subscribes
        that it alone served, and of those that all others have failed."""
        for subscribe in self._subscribes.values():
            subscribe.sent.pop(replica, None)
            subscribe.failed.pop(replica, None)
        its = [id for id, subscribe in self._subscribes.items() if subscribe.target == replica]
        why = f"replica {replica}, which alone serves this subscribe, was lost"
        return [*self.fail(its, _saying(why)), *self._all_failed(recipients)]

    def fail(
        self, ids: Iterable[GlobalId], why: Callable[[Position], str], *, is_void: bool = False
    ) -> list[SubscribeAdvanced]:
        """End subscribes that no replica will continue. `why`: the message, given what the client has received.
        `is_void`: nothing may follow that."""
        news = []
        for id in ids:
            subscribe = self._subscribes[id]
            if not subscribe.delivered[0].is_empty:
                time, part = subscribe.delivered
                batch = SubscribeBatch(time, Frontier.empty(), b"", why(subscribe.delivered), part, is_void=is_void)
                news.append(SubscribeAdvanced(id, batch, subscribe.delivered))
                subscribe.delivered = _END
        return news

    def _all_failed(self, recipients: Recipients) -> list[SubscribeAdvanced]:
        """The ends of subscribes that every replica has failed."""
        failed = []
        for id, subscribe in self._subscribes.items():
            asked_replicas = set(recipients(id)) if subscribe.target is None else {subscribe.target}
            if asked_replicas and asked_replicas <= subscribe.failed.keys():
                failed.append((id, subscribe.failed[min(asked_replicas)]))
        return [news for id, why in failed for news in self.fail([id], _saying(why))]


def _format_position(position: Position) -> str:
    """The text of a position: its time, and its part where that is not the first."""
    return f"{position[0]}.{position[1]}" if position[1] else f"{position[0]}"


def _saying(why: str) -> Callable[[Position], str]:
    """The same message, whatever the client has received."""
    return lambda told: why
