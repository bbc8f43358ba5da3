"""Subscribes: the rows of a subject, then their changes, sent to one client until it goes.

    plan ──► dataflow on all replicas ──► merged batches ──► Subscription (bounded) ──► the client, as it takes them

The dataflow ends when the client goes away or is too slow. A client that was too slow is told the time from which it
can continue. A subscribe may run for days, so its client's rights are checked again every minute
(auth/rights_renewal.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryRefused, SubscribeBehind, SubscribeNotWhole, SubscribeRevoked
from tidemark_operator.fleet.clients.subscription import Subscription
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import check_rights
from tidemark_operator.gateway.auth.rights_renewal import Authenticate, while_allowed
from tidemark_operator.gateway.query.plan_again import plan_again
from tidemark_operator.gateway.query.statement_shape import SPARK
from tidemark_operator.gateway.streams.answer_stream import CHUNK_SECONDS
from tidemark_operator.gateway.streams.stream_dataflow import (
    PlannedSubject,
    build_dataflow,
    plan_subject,
)
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import MAX_TIME, GlobalId, ReplicaId, Time
from tidemark_protocol.pb import gateway_pb2
from tidemark_protocol.plan.dataflow import SubscribeSink
from tidemark_protocol.types import Column

CHUNK_BYTES = 1024 * 1024


class SubscribeClient(Protocol):
    """The client of one subscribe, over gRPC or HTTP."""

    async def begin(self, columns: Sequence[Column], as_of: int, reads: Sequence[GlobalId]) -> None:
        """Send the columns of the rows, and the first time. `reads`: the relations whose changes follow."""

    def messages(self, news: SubscribeAdvanced) -> AsyncGenerator[Any, None]:
        """The batch in messages of about CHUNK_BYTES of rows; none where the client wants nothing of it."""

    async def write(self, message: Any) -> None:
        """Send a message; returns once there is room for the next one."""


class Subscribes:
    """The subscribes of one gateway. One that waits for its plan or for a replica is not one of those that run."""

    def __init__(self, context: ReconcileContext, limits: GatewayLimits) -> None:
        self._context, self._limits = context, limits

    async def serve(self, access: Access, admit: Authenticate, request: Any, client: SubscribeClient) -> None:
        """Send batches until the last one, or until the client goes. `admit`: authenticates the call again.

        Raises:
            SubscribeEnded: it ended before its last batch; subclasses and the text say why.
            QueryRefused, TooMany, Forbidden, PlannerUnavailable: as `plan_subject`.
        """
        self._limits.subscribes.check(access.caller)
        ready, made = await plan_again(access, request.namespace, lambda: self._begin(access, request))
        running = ready.instance.clients.subscribe(made)
        async with self._limits.subscribes.hold(access.caller), running as subscription:
            reads = ready.planned.references
            check = partial(check_rights, namespace=request.namespace, reads=reads, found=ready.owners)
            async with while_allowed(subscription, admit, check):
                await client.begin(ready.columns, made.description.as_of, reads)
                await BatchSender(client, subscription, made.description.as_of).send()

    async def _begin(self, access: Access, request: Any) -> tuple[PlannedSubject, Dataflow]:
        as_of = request.as_of if request.HasField("as_of") else None
        up_to = request.up_to if request.HasField("up_to") else None
        dialect = request.dialect or SPARK
        ready = await plan_subject(self._context, self._limits, access, request, "subscribe", dialect)
        sink = SubscribeSink(ready.columns, not request.without_snapshot, None if up_to is None else Time(up_to))
        made = await build_dataflow(self._context, ready, sink, as_of)
        _check(made.description.as_of, up_to)
        until = replace(made.description, until=sink.up_to)
        return ready, replace(made, description=until, target=_target(ready, request.replica))


class GrpcSubscriber:
    """A client over gRPC.

    `progress`: it wants batches without updates, too. `parts`: it knows that a batch may have a part of the updates of
    a time, or updates from before its lower, which it leaves out. Other clients are sent intervals that are not empty
    and have all updates of their times, and no others; where that cannot be, the subscribe ends.
    """

    def __init__(self, rpc: Any, request: Any) -> None:
        self._rpc, self._subject = rpc, request.subject
        self._progress, self._parts = request.progress, request.parts

    async def begin(self, columns: Sequence[Column], as_of: int, reads: Sequence[GlobalId]) -> None:
        names, types = [c.name for c in columns], [str(c.type) for c in columns]
        mark = fingerprint(self._subject, columns, reads)
        header = gateway_pb2.SubscribeHeader(
            as_of=as_of, column_names=names, column_types=types, reads=mark, relations=reads
        )
        await self.write(gateway_pb2.SubscribeReply(header=header))

    async def messages(self, news: SubscribeAdvanced) -> AsyncGenerator[Any, None]:
        (lower, part), data = news.lower, news.batch.updates
        if not self._parts and not _is_whole(news):
            if not data:
                return
            raise SubscribeNotWhole(
                f"the batch at {lower.encode()} has a part of its updates, or updates from before, and this client "
                "does not tell parts of a time apart: use a newer client, or subscribe to less (a filter, fewer "
                "columns)"
            )
        bounds = {"lower": lower.encode(), "lower_part": part, "upper": news.batch.upper.encode()}
        assert bounds["lower"] < EMPTY_SENTINEL
        for start in range(0, max(len(data), 1), CHUNK_BYTES) if data or self._progress else ():
            more = start + CHUNK_BYTES < len(data)
            batch = gateway_pb2.SubscribeBatch(**bounds, arrow=data[start : start + CHUNK_BYTES], more=more)
            yield gateway_pb2.SubscribeReply(batch=batch)

    async def write(self, message: Any) -> None:
        await self._rpc.write(message)


def _is_whole(news: SubscribeAdvanced) -> bool:
    """Whether the batch has all updates of the times from the client's position to its upper, and no others."""
    batch = news.batch
    return (batch.lower, batch.lower_part) == news.lower and batch.lower_part == batch.upper_part == 0


def fingerprint(subject: str, columns: Sequence[Column], reads: Sequence[GlobalId]) -> str:
    """The fingerprint of the relations that a subscribe reads. A relation that was made again, or by another plan, has
    another id, and a client must not apply its changes to the rows of the earlier one."""
    named = [subject, [(column.name, str(column.type)) for column in columns], sorted(reads)]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]


class BatchSender:
    """Sends the batches of one subscribe. `sent`: the client has every update before this frontier."""

    def __init__(self, client: SubscribeClient, subscription: Subscription, as_of: int) -> None:
        self._client, self._subscription, self._as_of = client, subscription, as_of
        self.sent = Frontier.minimum()

    async def send(self) -> None:
        """Send until the last batch; raises SubscribeEnded, with the time to continue from."""
        try:
            while not self.sent.is_empty:
                news = await self._subscription.next()
                async with aclosing(self._client.messages(news)) as messages:
                    async for message in messages:
                        await self._write(message)
                self.sent = news.batch.upper
            return
        except (SubscribeBehind, SubscribeNotWhole, SubscribeRevoked) as ended:
            with_advice = type(ended)(f"{ended}. {self._advice()}")
        raise with_advice  # a new error: the traceback of the first holds the batch

    async def _write(self, message: Any) -> None:
        """Wait until the client takes the message, however long. Once the subscription has failed (too slow, or its
        rights are withdrawn), nothing more is sent, not even the rest of a batch."""
        if self._subscription.given_up.is_set() and self._subscription.failure is not None:
            raise self._subscription.failure
        write = asyncio.ensure_future(self._client.write(message))
        given_up = asyncio.ensure_future(self._subscription.given_up.wait())
        try:
            await asyncio.wait({write, given_up}, return_when=asyncio.FIRST_COMPLETED)
            taken = (await asyncio.wait({write}, timeout=CHUNK_SECONDS))[0]
            if not taken and self._subscription.failure is not None:
                raise self._subscription.failure
            write.result()
        finally:
            write.cancel()
            given_up.cancel()

    def _advice(self) -> str:
        if self.sent.less_equal(self._as_of):
            return (
                "The client does not have the whole snapshot: subscribe to less (a filter, fewer columns), or use "
                "--no-snapshot"
            )
        last = self.sent.encode() - 1
        return (
            f"The client has everything up to {last}: continue with --as-of {last} --no-snapshot while that can be read"
        )


def _check(as_of: int, up_to: int | None) -> None:
    if up_to is not None and not as_of < up_to <= MAX_TIME:
        raise QueryRefused(f"--up-to {up_to} is not after the subscribe's first time {as_of}: choose a later end")


def _target(ready: PlannedSubject, replica: str) -> ReplicaId | None:
    target = ready.instance.process_of(replica)
    if target is not None and target not in ready.instance.online:
        there = ", ".join(ready.instance.online)
        raise QueryRefused(
            f"replica {replica} of ComputeInstance {ready.instance.name} does not answer now. Connected: "
            f"{there or 'none'}"
        )
    return target
