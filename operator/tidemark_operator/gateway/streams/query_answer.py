"""Queries: a statement is prepared, answered, and sent to one client as it takes the answer.

plan ──► memory for the answer ──► as of the freshest time then ──► a replica's answer ──► the client
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tidemark_operator.errors import AnswerIsError
from tidemark_operator.fleet.clients.result_stash_reader import stash_pieces
from tidemark_operator.fleet.running_instance import STASH_ABOVE_BYTES
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.fair_queue import FairQueue, QueueHold
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.admission.wait_policy import hold_when_possible, time_limit
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.query.operator_query import OperatorQuery
from tidemark_operator.gateway.query.plan_again import plan_again
from tidemark_operator.gateway.query.query import GatewayQuery, QueryRequest, describe, prepare
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.streams.answer_stream import send_answer
from tidemark_operator.gateway.streams.leases import LeaseOutcome, Leases
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_protocol import tracing
from tidemark_protocol.messages.responses import PeekError, PeekRows, PeekStashed
from tidemark_protocol.types import Column

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class QueryAnswer:
    """`reads`: the relation that was read; empty where the query has operators of its own. `skipped`: errors that the
    rows leave out. `arrow`: an Arrow IPC stream, in pieces of about CHUNK_BYTES. `lease`: what became of the lease that
    it was asked with."""

    as_of: int
    reads: str
    columns: Sequence[Column]
    skipped: int
    arrow: AsyncGenerator[bytes, None]
    lease: LeaseOutcome = LeaseOutcome()


class QueryClient(Protocol):
    """The client of one query, over gRPC or HTTP.

    `large`: where an answer that does not fit a message waits for its turn to be sent; None: at once, as what is held
    of it is never more than a piece.
    """

    large: FairQueue | None

    def take(self, answer: QueryAnswer, data: bytes) -> bool:
        """Send the whole answer, whose Arrow stream is `data`, if it is small and the client takes it at once."""

    def messages(self, answer: QueryAnswer) -> AsyncGenerator[Any, None]:
        """The answer in messages."""

    async def write(self, message: Any) -> None:
        """Send a message; returns once there is room for the next one."""


class Queries:
    """The queries of one gateway."""

    def __init__(
        self, context: ReconcileContext, statements: StatementCache, tables: RetainedTables, limits: GatewayLimits
    ) -> None:
        self._context, self._statements, self._tables, self._limits = context, statements, tables, limits
        self._leases = Leases(context, statements)

    async def serve(self, access: Access, request: QueryRequest, client: QueryClient) -> None:
        """Send the answer.

        Raises:
            AnswerIsError: the replica has an error instead of rows.
            AnswerTimedOut: it took longer than QUERY_SECONDS.
            AnswerLost, AnswerNotRead: the client has a part of the answer.
            QueryRefused, TooMany, Forbidden, PlannerUnavailable, ReviewUnavailable: as `prepare`.
        """
        with tracing.span("query", request.trace_context, tracing.SERVER, namespace=request.namespace):
            await plan_again(access, request.namespace, lambda: self._answer(access, request, client))

    async def _answer(self, access: Access, request: QueryRequest, client: QueryClient) -> None:
        slot = partial(self._limits.waits.hold, access.caller)
        prepared = await prepare(self._context, self._statements, self._tables, access, request, slot)
        memory = self._limits.one_shots if prepared.one_shot else self._limits.peeks
        async with hold_when_possible(memory, STASH_ABOVE_BYTES, access.caller, prepared.now, slot) as (query, held):
            lease = self._leases.of_query(access, request, query)
            async with time_limit(wait_policy.QUERY_SECONDS):
                result = await query.answer()
            if isinstance(result, PeekError):
                failure = result.message
            else:
                failure = ""
                try:
                    with tracing.span("send", rows=result.row_count):
                        await _send(client, access.caller, _answer(query, result, lease), result, held)
                finally:
                    query.release()
        if failure:
            raise AnswerIsError(failure)

    async def describe(self, access: Access, request: QueryRequest) -> Sequence[Column]:
        """The columns of the answer, without it. Raises as `prepare`."""
        return await plan_again(
            access, request.namespace, lambda: describe(self._context, self._statements, access, request)
        )


async def _send(
    client: QueryClient,
    caller: str,
    answer: QueryAnswer,
    result: PeekRows | PeekStashed,
    held: QueueHold,
) -> None:
    if isinstance(result, PeekRows) and client.take(answer, result.data):
        return
    async with AsyncExitStack() as stack:
        if isinstance(result, PeekRows):
            held.shrink(len(result.data))
        elif client.large is not None:
            held.shrink(0)  # the answer is kept by the replica: one that waits for its turn delays no other query
            held = await stack.enter_async_context(client.large.hold(caller))
        await stack.enter_async_context(aclosing(answer.arrow))
        messages = await stack.enter_async_context(aclosing(client.messages(answer)))
        await send_answer(client, messages, held)


def _answer(query: GatewayQuery | OperatorQuery, result: PeekRows | PeekStashed, lease: LeaseOutcome) -> QueryAnswer:
    read, pieces = (query.as_of, query.reads, query.answer_columns), _answer_pieces(query, result)
    return QueryAnswer(*read, result.skipped, pieces, lease)


async def _answer_pieces(
    query: GatewayQuery | OperatorQuery, result: PeekRows | PeekStashed
) -> AsyncGenerator[bytes, None]:
    """The encoded rows of an answer, in pieces that fit a message."""
    if isinstance(result, PeekStashed):
        assert isinstance(query, GatewayQuery), "the operator keeps no answer"
        async for piece in stash_pieces(query.instance, query.peek.uuid, result.size):
            yield piece
    else:
        for start in range(0, len(result.data), CHUNK_BYTES):
            yield result.data[start : start + CHUNK_BYTES]
