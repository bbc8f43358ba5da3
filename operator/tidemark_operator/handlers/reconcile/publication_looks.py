"""Looks for the tables of publications that are followed as a whole, each LOOK_SECONDS.

    replica ──published tables──► the last look ──► with_published_tables: what is followed, as if the spec named it

A look that takes longer than a moment goes on beside the reconciliation: tables that are followed do not wait for it.
An operator that begins has no look: until it has one, the pinned tables are followed as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile.source_inspection_queue import SourceInspectionQueue
from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.published_tables import (
    PublishedSource,
    WholePublication,
    abridged,
    sought,
    with_published_tables,
)
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.conditions.instance import IMAGE_TOO_OLD
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, PublicationTable

LEFT_OUT = "TablesLeftOut"
LOOK_SECONDS = 60.0
"""The pause between two looks for tables."""
MOMENT_SECONDS = 0.5
"""A reconciliation waits so long for a look, as most have ended by then."""


@dataclass(frozen=True)
class _Look:
    """The time of a look (monotonic seconds), what it was asked for, and what it found, or the reason why not."""

    at: float
    wanted: WholePublication
    published: tuple[PublicationTable, ...] = ()
    unexamined: int = 0
    failure: IngestionFailure | None = None


class PublicationLooks:
    """`inspections`: the queue that all DataSources share; `again`: puts a DataSource into the work queue."""

    def __init__(self, inspections: SourceInspectionQueue, again: Callable[[Key], None]) -> None:
        self._inspections, self._again = inspections, again
        self._looks: dict[Key, _Look] = {}
        self._running: dict[Key, asyncio.Task[bool]] = {}

    async def look_for_a_moment(self, state: SourceState, source: DataSource, running: RunningInstance) -> None:
        """Have a replica look, as `look` does. A look that takes longer goes on, and the DataSource is reconciled when
        it has ended. Raises what the look raised, also one that has ended since."""
        key, task = state.key, self._running.get(state.key)
        if task is None:
            task = asyncio.create_task(self.look(state, source, running), name=f"look for tables of {key}")
            self._running[key] = task
            await asyncio.wait({task}, timeout=MOMENT_SECONDS)
            if not task.done():
                task.add_done_callback(lambda ended: self._on_end(key, ended))
        if task.done() and self._running.get(key) is task:
            del self._running[key]
            task.result()

    def _on_end(self, key: Key, task: asyncio.Task[bool]) -> None:
        if not task.cancelled() and (task.exception() is not None or task.result()):
            self._again(key)

    async def look(self, state: SourceState, source: DataSource, running: RunningInstance) -> bool:
        """Have a replica look, where it is time to, and the source is neither suspended nor being deleted. Return
        whether the last look is another one now."""
        wanted = publication_of(source)
        last = self._looks.get(state.key)
        is_due = last is None or last.wanted != wanted or monotonic() >= last.at + LOOK_SECONDS
        rests = (source.suspend or source.meta.deleting) and state.pinned is not None
        if wanted is None or not is_due or rests:
            return False
        request = sought(wanted, state.pinned)
        if running.is_too_old_for(request):
            self._looks[state.key] = _Look(
                monotonic(), wanted, failure=IngestionFailure(IMAGE_TOO_OLD, running.too_old)
            )
            return True
        try:
            with self._inspections.turn(state.key) as admitted:
                if not admitted:
                    return False
                answer = await running.inspect(request)
            published = tuple(codec.decode(table, PublicationTable) for table in answer.published)
        except Waiting:
            return False
        except MalformedPlan as error:
            failure = IngestionFailure("SourceUnreadable", f"the replica's answer cannot be read: {error}")
            self._looks[state.key] = _Look(monotonic(), wanted, failure=failure)
            return True
        failed = IngestionFailure("SourceUnreadable", answer.error) if answer.error else None
        self._looks[state.key] = _Look(monotonic(), wanted, published, answer.unexamined, failed)
        return True

    def has_looked(self, key: Key) -> bool:
        return key in self._looks

    def published(self, source: DataSource, key: Key, pinned: IngestionDescription | None) -> PublishedSource | None:
        """All tables that are followed, by the last look; None where the spec names them all."""
        wanted, last = publication_of(source), self._looks.get(key)
        if wanted is None:
            return None
        if last is None or last.wanted != wanted:
            return with_published_tables(wanted, pinned, ())
        return with_published_tables(wanted, pinned, last.published, last.unexamined)

    def failure(self, source: DataSource, key: Key, published: PublishedSource | None) -> IngestionFailure | None:
        """The reason why tables of the publication are not followed."""
        wanted, last = publication_of(source), self._looks.get(key)
        if wanted is None or published is None:
            return None
        if last is not None and last.failure is not None:
            return last.failure
        if not published.left_out:
            return None
        return IngestionFailure(
            LEFT_OUT,
            f"tables of publication {wanted.source.publication} are not followed: {abridged(published.left_out)}. Mend "
            "this upstream, or give the table an entry in tables or in exceptTables",
        )

    def expire(self, key: Key) -> None:
        """Forgets the last look, which does not hold any more: the next one is at once."""
        self._looks.pop(key, None)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.expire(key)
        if (task := self._running.pop(key, None)) is not None:
            task.cancel()


def publication_of(source: DataSource) -> WholePublication | None:
    """The publication that the DataSource follows as a whole; None where the spec names its tables."""
    if isinstance(source.source, PostgresSource) and source.source.all_tables:
        return WholePublication(source.source, source.excepted)
    return None
