"""Sends the rows of a namespace to each DataSource of kind introspection, once in each of its ticks.

    just after a tick ──► document of this moment ──► the replica that ingests ──► its next tick binds it
                                                       (no answer, an error: again after RETRY_SECONDS)

Nothing is remembered here: a document has all rows, so one that is lost, or sent twice, changes nothing for good. A new
leader goes on with its first one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from time import monotonic

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import OperatorError, QueryNotReady
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.row_calls import send_rows
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.documents import document, encoded
from tidemark_operator.kube.cache import Key
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan.ingestion import IntrospectionSource
from tidemark_protocol.plan.successors import spec_name

LOG = logging.getLogger(__name__)
LOOK_SECONDS, RETRY_SECONDS, CALL_SECONDS = 0.5, 1.0, 30.0
AFTER_TICK_SECONDS = 0.05
"""The ingester is at the tick by then, unless its clock is behind."""
PAUSE_FACTOR = 20
"""The pause after a document is at least so many times as long as it took to make: it takes the event loop."""
PIECE_BYTES = 1 << 20


class IntrospectionFeed:
    """One task for each DataSource of kind introspection that is ingested."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._tasks: dict[GlobalId, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
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
        failed = ""
        while (state := self._fed(key)) is not None and state.uid == uid:
            assert state.pinned is not None
            began = monotonic()
            found = document(self._context, key.namespace, _relations(state))
            busy = monotonic() - began
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._send(state, await asyncio.to_thread(encoded, found))
                failed, pause = "", _until_next(state.pinned.tick_ms) + AFTER_TICK_SECONDS
            except (OperatorError, TimeoutError) as error:
                text = str(error) or f"no answer within {CALL_SECONDS:g} s"
                if text != failed:
                    LOG.warning("DataSource %s/%s: the rows could not be sent: %s", key.namespace, key.name, text)
                failed, pause = text, RETRY_SECONDS
            await asyncio.sleep(max(pause, PAUSE_FACTOR * busy))

    async def _send(self, state: SourceState, body: bytes) -> None:
        """Raises OperatorError where the replica does not take the document, or another operator may lead: what this
        one knows may be from before a pause of its process."""
        self._context.leadership.check()
        running = self._context.running(state.key.namespace, state.instance)
        if running is None or state.pinned is None or state.ingester is None:
            raise QueryNotReady("it is not ingested any more")
        header = compute_pb2.WriteRowsHeader(ingestion=state.pinned.id, operation="replace", format="json")
        answer = await send_rows(running, ReplicaId(state.ingester.replica), header, _pieces(body))
        if answer.refusal:
            raise QueryNotReady(answer.refusal)


def _relations(state: SourceState) -> list[str]:
    """The relations of its tables; two tables may be of one, where it was removed and added again."""
    assert state.pinned is not None
    assert isinstance(state.pinned.source, IntrospectionSource)
    return list(dict.fromkeys(spec_name(table.name) for table in state.pinned.source.tables))


def _until_next(tick_ms: int) -> float:
    """Seconds until the clock passes the next tick."""
    return (tick_ms - now_ms() % tick_ms) / 1000


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
