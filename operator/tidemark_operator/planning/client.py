"""The planner's process, as a function from a request to a plan or a refusal.

A channel lasts as long as its certificate: a new certificate gets a new channel, and pending calls end on the old one.

A query has a user that waits. So if the planner is away (a statement took too long, and its process was killed), the
client waits until it is back and sends the request again. A Dataflow is planned again by its reconcile anyway.

A plan may take so much processor time: elapsed time would refuse trivial statements on a busy machine. The planner
answers with the diagnostic TIMEOUT then, and also some seconds before the deadline of the call. If even that answer
does not come, the client kills the planner, which has no state.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from tidemark_operator.certificates.channel_factory import PLAIN_CHANNELS, ChannelFactory
from tidemark_operator.errors import PlannerUnavailable
from tidemark_protocol import tracing
from tidemark_protocol.errors import MalformedPlan, ProtocolError
from tidemark_protocol.messages.planning import (
    GRACE_SECONDS,
    Diagnostic,
    Planned,
    PlannedOneShot,
    PlannedPeek,
    PlanQueryRequest,
    PlanRequest,
    Refused,
)
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.plan import codec
from tidemark_protocol.vocabulary import wire_name_of

LOG = logging.getLogger(__name__)
QUERY_SECONDS = 5.0
"""The processor time of plans of queries."""
DATAFLOW_SECONDS = 30.0
"""The processor time of plans of Dataflows."""
ELAPSED_SECONDS = 30.0
"""The time that a plan may take beyond its processor time, on a busy machine."""
PATIENCE_SECONDS = 60.0
"""The time that patient calls wait for a planner that is away, from when any call found it so. Its JVM starts in about
ten, and takes a minute on a busy machine."""
AGAIN_SECONDS = 0.5
FORGET_SECONDS = 8 * AGAIN_SECONDS
"""The wait begins anew where no call has found the planner away for this time."""
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
AWAY, BUSY = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
T = TypeVar("T")


class Outage:
    """The time since when the planner has been away, as calls find it. Times are in seconds, of a monotonic clock."""

    def __init__(self) -> None:
        self._since = self._last = -math.inf

    def record(self, began: float, now: float) -> float:
        """Record that a call which began at `began` found the planner away at `now`. Returns for how many seconds it
        has been away."""
        if began - self._last > FORGET_SECONDS:
            self._since = now
        self._last = now
        return now - self._since

    def end(self) -> None:
        """The planner answered."""
        self._last = -math.inf


class PlannerClient:
    """`kill`: kills the planner's process, which is then started again. `explain`: what is known of a process that does
    not answer."""

    def __init__(
        self,
        address: str,
        kill: Callable[[], None],
        explain: Callable[[], str] = str,
        dialer: ChannelFactory = PLAIN_CHANNELS,
    ) -> None:
        self._address, self._dialer = address, dialer
        self._kill, self._explain = kill, explain
        self._closing: set[asyncio.Task[None]] = set()
        self._outage = Outage()
        self._open()

    async def plan(self, request: PlanRequest, patient: bool = False) -> Planned | Refused:
        """Plans a Dataflow. `patient`: a process that is away is waited for.

        Raises:
            PlannerUnavailable: the process does not answer, or is busy.
        """
        seconds = QUERY_SECONDS if patient else DATAFLOW_SECONDS
        message = planner_pb2.PlanRequest(request=codec.encode(request), cpu_seconds=seconds)
        return await self._ask(lambda: self._planner().Plan, patient, seconds, message, Planned)

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | PlannedOneShot | Refused:
        """Plans a query.

        Raises:
            PlannerUnavailable: the process is away, or busy, and stays so for PATIENCE_SECONDS.
        """
        message = planner_pb2.PlanQueryRequest(request=codec.encode(request), cpu_seconds=QUERY_SECONDS)
        method, expected = lambda: self._planner().PlanQuery, (PlannedPeek, PlannedOneShot)
        with tracing.span("plan", kind=tracing.CLIENT):
            return await self._ask(method, True, QUERY_SECONDS, message, *expected)

    async def close(self) -> None:
        await asyncio.gather(self._channel.close(None), *self._closing)

    def _open(self) -> None:
        self._shown = self._dialer.material()
        self._channel = self._dialer.channel(self._address, OPTIONS)
        self._stub = planner_pb2_grpc.PlannerStub(self._channel)  # type: ignore[no-untyped-call]

    def _planner(self) -> Any:
        if self._dialer.material() != self._shown:
            closing = asyncio.create_task(self._channel.close(_deadline(DATAFLOW_SECONDS)))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._open()
        return self._stub

    async def _ask(
        self, method: Callable[[], Any], patient: bool, seconds: float, message: Any, *expected: type[T]
    ) -> T | Refused:
        try:
            answer = await self._answer(method, patient, seconds, message)
            return decode_outcome(answer.outcome, *expected)
        except grpc.aio.AioRpcError as error:
            if error.code() is BUSY:
                raise PlannerUnavailable(f"waiting for a turn at the planner: {error.details()}") from None
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                reason = await self._dialer.explain(self._address) or self._explain() or error.code().name
                raise PlannerUnavailable(f"the planner does not answer: {reason}") from None
            LOG.warning("the planner did not answer by the deadline of the call: it is killed")
            self._kill()
            silence = f"the planner did not answer within {_deadline(seconds):.0f} s and is started again: try again"
            return Refused((Diagnostic("TIMEOUT", silence),))
        except ProtocolError as error:
            raise PlannerUnavailable(f"the planner's answer cannot be read: {error}") from None

    async def _answer(self, method: Callable[[], Any], patient: bool, seconds: float, message: Any) -> Any:
        """Sends the request, and sends it again while the process is away or busy, if `patient`, for PATIENCE_SECONDS
        at most: it may be busy with others each time. Raises AioRpcError."""
        began = time.monotonic()
        while True:
            attempt_began = time.monotonic()
            try:
                answer = await method()(message, timeout=_deadline(seconds), metadata=tracing.metadata())
            except grpc.aio.AioRpcError as error:
                if error.code() not in (AWAY, BUSY):
                    raise
                now, away = time.monotonic(), 0.0
                if error.code() is AWAY:
                    away = self._outage.record(attempt_began, now)
                else:
                    self._outage.end()
                if not patient or max(away, now - began) >= PATIENCE_SECONDS:
                    raise
            else:
                self._outage.end()
                return answer
            await asyncio.sleep(AGAIN_SECONDS)


def _deadline(cpu_seconds: float) -> float:
    """The time that a call may take whose plan may take `cpu_seconds` of processor time."""
    return cpu_seconds + ELAPSED_SECONDS + GRACE_SECONDS


def decode_outcome(data: bytes, *expected: type[T]) -> T | Refused:
    """Decodes a planner's answer, whose canonical bytes begin with the name of its type.

    Raises:
        MalformedPlan: the type is neither a refusal nor one of these.
    """
    kinds: tuple[type[Any], ...] = (Refused, *expected)
    for kind in kinds:
        if data.startswith(b'{"@":"%s"' % wire_name_of(kind).encode()):
            outcome: T | Refused = codec.decode(data, kind)
            return outcome
    raise MalformedPlan(f"none of {', '.join(map(wire_name_of, expected))}")
