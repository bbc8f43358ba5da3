"""The planner's process, as a function: a request in, a plan or a refusal out.

A plan that takes longer than the deadline kills the process (it has no state, and nothing else stops Catalyst), and the
answer is a TIMEOUT diagnostic: asked again, the same text would take as long again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from tidemark_operator.errors import PlannerUnavailable
from tidemark_protocol import codec
from tidemark_protocol.errors import MalformedPlan, ProtocolError
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.planning import (
    Diagnostic,
    Planned,
    PlannedOneShot,
    PlannedPeek,
    PlanQueryRequest,
    PlanRequest,
    Refused,
)

LOG = logging.getLogger(__name__)
PLAN_SECONDS = 5.0
GRACE_SECONDS = 3.0
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
T = TypeVar("T")


class PlannerClient:
    """Open for as long as the operator runs; `kill` ends the process, which is then started again; `explain` says what
    is known of a process that does not answer."""

    def __init__(self, address: str, kill: Callable[[], None], explain: Callable[[], str] = str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub = planner_pb2_grpc.PlannerStub(self._channel)  # type: ignore[no-untyped-call]
        self._kill, self._explain = kill, explain

    async def plan(self, request: PlanRequest) -> Planned | Refused:
        """Raises PlannerUnavailable while the process is not there."""
        message = planner_pb2.PlanRequest(request=codec.encode(request))
        return await self._ask(self._stub.Plan, message, Planned)

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | PlannedOneShot | Refused:
        """Raises PlannerUnavailable while the process is not there."""
        message = planner_pb2.PlanQueryRequest(request=codec.encode(request))
        return await self._ask(self._stub.PlanQuery, message, PlannedPeek, PlannedOneShot)

    async def close(self) -> None:
        await self._channel.close(None)

    async def _ask(self, method: Any, message: Any, *expected: type[T]) -> T | Refused:
        try:
            answer = await method(message, timeout=PLAN_SECONDS + GRACE_SECONDS)
            return decode_outcome(answer.outcome, *expected)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise PlannerUnavailable(
                    f"the planner does not answer: {self._explain() or error.code().name}"
                ) from None
            LOG.warning("a plan took longer than %.0f s: the planner is started again", PLAN_SECONDS)
            self._kill()
            return Refused(
                (Diagnostic("TIMEOUT", f"planning took longer than {PLAN_SECONDS:.0f} s: simplify the SQL"),)
            )
        except ProtocolError as error:
            raise PlannerUnavailable(f"the planner's answer cannot be read: {error}") from None


def decode_outcome(data: bytes, *expected: type[T]) -> T | Refused:
    """Canonical bytes begin with the name of what they are."""
    kinds: tuple[type[Any], ...] = (Refused, *expected)
    for kind in kinds:
        if data.startswith(b'{"@":"%s"' % kind.__name__.encode()):
            outcome: T | Refused = codec.decode(data, kind)
            return outcome
    raise MalformedPlan(f"none of {', '.join(kind.__name__ for kind in expected)}")
