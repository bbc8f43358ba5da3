"""The planner's process, as a function: a request in, a plan or a refusal out.

A channel lives for as long as the certificate that it shows: with a new one comes a new channel, and what was asked
through the old one is still answered there.

Who asks for a query is a user that waits, so a process that is away (another's statement took too long, and cost it its
life) is waited for: it is started again, and the question asked again. What is asked for a Dataflow comes again anyway.

How long a plan may take, the call's deadline tells the planner. It answers with a TIMEOUT diagnostic then: asked again,
the same text would take as long again. Where even that does not come, the planner itself is ended: it has no state.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from tidemark_operator.certificates.channel_factory import PLAIN, Dialer
from tidemark_operator.errors import PlannerUnavailable
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
"""For who waits for the answer."""
DATAFLOW_SECONDS = 30.0
"""A plan that is made once and then lives for years may take more."""
PATIENCE_SECONDS = 30.0
"""For a planner that does not answer, from when it was first found so, whoever found it: a JVM starts in ten or so."""
AGAIN_SECONDS = 0.5
FORGET_SECONDS = 8 * AGAIN_SECONDS
"""When nobody has found it away for so long, it may have been there meanwhile: a wait begins anew."""
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
AWAY, BUSY = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
T = TypeVar("T")


class Away:
    """Since when a planner does not answer, as far as those tell who asked it."""

    def __init__(self) -> None:
        self._since = self._seen = -math.inf

    def found(self, asked: float, now: float) -> float:
        """For how long it has been so by now, for who asked and was not answered."""
        if asked - self._seen > FORGET_SECONDS:
            self._since = now
        self._seen = now
        return now - self._since

    def ended(self) -> None:
        """It answers."""
        self._seen = -math.inf


class PlannerClient:
    """Open for as long as the operator runs; `kill` ends the process, which is then started again; `explain` says what
    is known of a process that does not answer."""

    def __init__(
        self, address: str, kill: Callable[[], None], explain: Callable[[], str] = str, dialer: Dialer = PLAIN
    ) -> None:
        self._address, self._dialer = address, dialer
        self._kill, self._explain = kill, explain
        self._closing: set[asyncio.Task[None]] = set()
        self._away = Away()
        self._open()

    async def plan(self, request: PlanRequest, patient: bool = False) -> Planned | Refused:
        """Raises PlannerUnavailable while the process is not there; `patient`: unless it comes back soon."""
        message = planner_pb2.PlanRequest(request=codec.encode(request))
        seconds = QUERY_SECONDS if patient else DATAFLOW_SECONDS
        return await self._ask(lambda: self._planner().Plan, patient, seconds, message, Planned)

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | PlannedOneShot | Refused:
        """Raises PlannerUnavailable where the process is not there and does not come back soon."""
        message = planner_pb2.PlanQueryRequest(request=codec.encode(request))
        method, expected = lambda: self._planner().PlanQuery, (PlannedPeek, PlannedOneShot)
        return await self._ask(method, True, QUERY_SECONDS, message, *expected)

    async def close(self) -> None:
        await asyncio.gather(self._channel.close(None), *self._closing)

    def _open(self) -> None:
        self._shown = self._dialer.material()
        self._channel = self._dialer.channel(self._address, OPTIONS)
        self._stub = planner_pb2_grpc.PlannerStub(self._channel)  # type: ignore[no-untyped-call]

    def _planner(self) -> Any:
        if self._dialer.material() != self._shown:
            closing = asyncio.create_task(self._channel.close(DATAFLOW_SECONDS + GRACE_SECONDS))
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
                blamed = await self._dialer.explain(self._address) or self._explain() or error.code().name
                raise PlannerUnavailable(f"the planner does not answer: {blamed}") from None
            LOG.warning("the planner did not even say that a plan took longer than %.0f s: it is ended", seconds)
            self._kill()
            return Refused((Diagnostic("TIMEOUT", f"planning took longer than {seconds:.0f} s: simplify the SQL"),))
        except ProtocolError as error:
            raise PlannerUnavailable(f"the planner's answer cannot be read: {error}") from None

    async def _answer(self, method: Callable[[], Any], patient: bool, seconds: float, message: Any) -> Any:
        """Asks again while the process is away, or busy, if patient, and not for ever: others may be answered, and this
        one find it busy each time. Raises AioRpcError."""
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                answer = await method()(message, timeout=seconds + GRACE_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (AWAY, BUSY):
                    raise
                now, away = time.monotonic(), 0.0
                if error.code() is AWAY:
                    away = self._away.found(asked, now)
                else:
                    self._away.ended()
                if not patient or max(away, now - began) >= PATIENCE_SECONDS:
                    raise
            else:
                self._away.ended()
                return answer
            await asyncio.sleep(AGAIN_SECONDS)


def decode_outcome(data: bytes, *expected: type[T]) -> T | Refused:
    """Canonical bytes begin with the name of what they are."""
    kinds: tuple[type[Any], ...] = (Refused, *expected)
    for kind in kinds:
        if data.startswith(b'{"@":"%s"' % wire_name_of(kind).encode()):
            outcome: T | Refused = codec.decode(data, kind)
            return outcome
    raise MalformedPlan(f"none of {', '.join(map(wire_name_of, expected))}")
