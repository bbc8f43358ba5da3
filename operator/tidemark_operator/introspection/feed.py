"""Sends the rows of a namespace to each DataSource of kind introspection, once in each of its ticks.

    tick ─── moment ─────────────────────────────── tick ─── moment ── ...
             document ──► the replica that ingests binds it to the tick
                          (no answer, an error: again after RETRY_SECONDS)

Nothing is remembered here: a document has all rows, so one that is lost, or sent twice, changes nothing for good. A new
leader goes on with its first one. The moments of a namespace have one place in all ticks of a length, by its name, so
that not all namespaces come at once; by then most tables of that tick have it, and lags are those of between ticks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from zlib import crc32

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import OperatorError, QueryNotReady
from tidemark_operator.fleet.clients.row_calls import send_rows
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.shared_documents import SharedDocuments
from tidemark_operator.kube.cache import Key
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan.ingestion import IntrospectionSource
from tidemark_protocol.plan.successors import spec_name

LOG = logging.getLogger(__name__)
LOOK_SECONDS, RETRY_SECONDS, CALL_SECONDS = 0.5, 1.0, 30.0
FIRST_MS, LAST_MS = 1000, 5000
"""The moment is so long after the tick, or a quarter of a tick and three quarters, where these are less."""
PIECE_BYTES = 1 << 20


class IntrospectionFeed:
    """One task for each DataSource of kind introspection that is ingested."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._documents = SharedDocuments(context)
        self._tasks: dict[GlobalId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._look()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _look(self) -> None:
        """Start the tasks that are missing; one ends by itself when its source is not ingested any more."""
        for id, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[id]
                if not task.cancelled() and (error := task.exception()) is not None:
                    LOG.error("the rows of an introspection source could not be made", exc_info=error)
        for state in self._context.registry.all_sources():
            if self._fed(state.key) is not None and GlobalId(state.uid) not in self._tasks:
                self._tasks[GlobalId(state.uid)] = asyncio.create_task(self._feed(state.key, state.uid))

    def _fed(self, key: Key) -> SourceState | None:
        """The state of the source, if it is of this kind and a connected replica ingests it."""
        state = self._context.registry.source(key)
        if state is None or state.pinned is None or not isinstance(state.pinned.source, IntrospectionSource):
            return None
        running = self._context.running(key.namespace, state.instance)
        if running is None or state.ingester is None or not running.is_ingesting(state.pinned.id):
            return None
        return state if ReplicaId(state.ingester.replica) in running.online else None

    async def _feed(self, key: Key, uid: str) -> None:
        failed, sent = "", 0
        while (state := self._fed(key)) is not None and state.uid == uid:
            assert state.pinned is not None
            tick_ms, names = state.pinned.tick_ms, _relations(state)
            moment = _moment_at(now := now_ms(), key.namespace, tick_ms)
            if moment == sent:
                await asyncio.sleep((moment + tick_ms - now) / 1000)
                continue
            found = await self._documents.make(key.namespace, names)
            if (state := self._fed(key)) is None or state.uid != uid or _relations(state) != names:
                continue  # its turn came late
            text, pause = found.obstacle, 0.0
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    if refusal := await self._send(state, found.body):
                        text = f"the replica refuses them: {refusal}"
                        await self._send(state, found.refused(refusal))
                sent = _moment_at(found.moment, key.namespace, tick_ms)
            except (OperatorError, TimeoutError) as error:
                text, pause = str(error) or f"no answer within {CALL_SECONDS:g} s", RETRY_SECONDS
            if text not in ("", failed):
                LOG.warning("DataSource %s/%s: its rows are not sent: %s", key.namespace, key.name, text)
            failed = text
            await asyncio.sleep(pause)

    async def _send(self, state: SourceState, body: bytes) -> str:
        """The replica's refusal, empty if it takes the document. Raises OperatorError where it does not answer, or
        another operator may lead: what this one knows may be from before a pause of its process."""
        self._context.leadership.check()
        running = self._context.running(state.key.namespace, state.instance)
        if running is None or state.pinned is None or state.ingester is None:
            raise QueryNotReady(f"DataSource {state.key.name} is not ingested any more")
        header = compute_pb2.WriteRowsHeader(ingestion=state.pinned.id, operation="replace", format="json")
        answer = await send_rows(running, ReplicaId(state.ingester.replica), header, _body_pieces(body))
        return answer.refusal


def moment_in_tick(namespace: str, tick_ms: int) -> int:
    """The milliseconds after each tick at which the documents of a namespace are made: one operator after another makes
    them at the same ones."""
    first, last = min(tick_ms // 4, FIRST_MS), min(tick_ms * 3 // 4, LAST_MS)
    return first + crc32(namespace.encode()) % (last - first + 1)


def _relations(state: SourceState) -> tuple[str, ...]:
    """The relations of its tables; two tables may be of one, where it was removed and added again."""
    assert state.pinned is not None
    assert isinstance(state.pinned.source, IntrospectionSource)
    return tuple(dict.fromkeys(spec_name(table.name) for table in state.pinned.source.tables))


def _moment_at(now: int, namespace: str, tick_ms: int) -> int:
    """The last moment for documents of the namespace at or before `now`."""
    return now - (now - moment_in_tick(namespace, tick_ms)) % tick_ms


async def _body_pieces(body: bytes) -> AsyncIterator[bytes]:
    """The body in pieces of PIECE_BYTES at most."""
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
