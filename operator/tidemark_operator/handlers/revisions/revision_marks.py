"""Which stored revision serves, and which is to take over: written into status before anything is done about it.

    store     inputs protected, the plan in a ControllerRevision
    serve     status.revision, and no status.pending               the only one; a pending one is given up
    pend      status.pending                                       beside the one that serves
    commit    status.revision of the Dataflow that was edited      at this moment all members take over
    catch up  status.revision of each other member                 says what is so already

Whoever reads statuses after a crash finds the same: a pending revision whose replacement is marked as active of the
edited Dataflow has taken over. Marks of a namespace are set one after the other, and what was decided before waiting
is looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidemark_operator.catalogue.registry import DataflowState, PendingRevision, Together
from tidemark_operator.catalogue.replacement_closure import as_replaced, is_stale
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.publish.publisher import Publisher
from tidemark_operator.handlers.publish.status_documents import Revision
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.handlers.revisions.installer import hold_stored, retire
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.kube.revisions import Owner, parse_revision
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent
from tidemark_operator.resources.conditions.dataflow import Stored
from tidemark_operator.resources.manifest.meta import Meta

LOOK_AGAIN = "its revisions changed meanwhile"


class Marks:
    def __init__(self, world: World, publisher: Publisher) -> None:
        self._world, self._publisher = world, publisher
        self._locks: dict[str, asyncio.Lock] = {}

    def lock(self, namespace: str) -> asyncio.Lock:
        """Held while marks of the namespace are set."""
        return self._locks.setdefault(namespace, asyncio.Lock())

    async def protect(self, namespace: str, parents: Sequence[Parent]) -> None:
        """What is read cannot vanish; raises Waiting where it is on its way."""
        for parent in parents:
            resource = DATA_SOURCES if parent.kind == DATA_SOURCES.kind else DATAFLOWS
            if not await set_finalizer(
                self._world.kube, self._world.cache, Key(resource, namespace, parent.name), wanted=True
            ):
                raise Waiting("WaitingForInput", f"{parent} is being deleted")

    async def stored(self, meta: Meta) -> dict[int, DataflowRevision]:
        """All stored revisions of a Dataflow, by number. The newest one is never removed, so that no number and no
        writer term is given twice."""
        bodies = await self._world.revisions.of(meta)
        return {int(body["revision"]): parse_revision(body, DataflowRevision) for body in bodies}

    async def store(
        self, state: DataflowState, meta: Meta, stored: dict[int, DataflowRevision], revision: DataflowRevision
    ) -> ActiveRevision:
        """One of the same identity is taken as it is, unless what serves is newer: its term would be too old."""
        floor = state.active.number if state.active else 0
        same = [n for n, known in stored.items() if known.identity == revision.identity and n > floor]
        number = max(same) if same else 1 + max(stored, default=0)
        revision = stored[number] if same else revision
        owner = Owner(state.key.resource.api_version, state.key.resource.kind, meta)
        name = await self._world.revisions.store(owner, number, revision)
        return ActiveRevision(name, number, meta.generation, revision.spec_digest, revision)

    async def serve(self, state: DataflowState, meta: Meta, mark: ActiveRevision, alone: bool = False) -> None:
        """This one serves, and no other is wanted. `alone`: nor is any other stored."""
        seen = state.marks
        async with self.lock(state.key.namespace):
            self._check(state, seen, mark, None)
            with _marking(state):
                await self._publisher.store(state.key, {"revision": document(mark), "pending": None}, state.uid)
            before, state.active, state.pending = state.marks, mark, None
            state.plan, state.held_back, state.pending_waiting = Stored(mark.name), None, ""
            book = self._world.fleet.book(state.key.namespace)
            for old in before:
                if old.number != mark.number:
                    retire(book, state, old)
            if all(old.number != mark.number for old in before):
                hold_stored(book, state)
        if not alone:
            await self.prune(state, meta)

    async def pend(self, state: DataflowState, meta: Meta, pending: PendingRevision) -> None:
        """This one is to run beside the one that serves."""
        seen = state.marks
        async with self.lock(state.key.namespace):
            self._check(state, seen, pending.mark, pending.together)
            with _marking(state):
                await self._publisher.store(state.key, {"pending": pending_document(pending)}, state.uid)
            book = self._world.fleet.book(state.key.namespace)
            if state.pending is not None and state.pending.mark.number != pending.mark.number:
                retire(book, state, state.pending.mark)
            state.pending, state.held_back, state.pending_waiting = pending, None, ""
            hold_stored(book, state, only=pending.mark)
        await self.prune(state, meta)

    async def commit(self, root: DataflowState, members: Sequence[DataflowState]) -> None:
        """The moment at which all take over. The caller holds the lock, and has just made sure that they may."""
        assert root.pending is not None
        with _marking(root):
            status = {"revision": document(root.pending.mark), "pending": None}
            await self._publisher.store(root.key, status, root.uid)
        for member in members:
            promote(self._world.fleet.book(member.key.namespace), member)
        root.unmarked = False

    async def catch_up(self, state: DataflowState, meta: Meta) -> None:
        """Its status says what serves since others were replaced."""
        if not state.unmarked or state.active is None:
            return
        async with self.lock(state.key.namespace):
            pending = pending_document(state.pending) if state.pending else None
            with _marking(state):
                status = {"revision": document(state.active), "pending": pending}
                await self._publisher.store(state.key, status, state.uid)
            state.unmarked = False
        await self.prune(state, meta)

    def _check(
        self,
        state: DataflowState,
        seen: tuple[ActiveRevision, ...],
        mark: ActiveRevision,
        together: Together | None,
    ) -> None:
        """That what was decided still stands; raises Waiting."""
        view = as_replaced(self._world.registry.dataflows(state.key.namespace), together)
        if state.marks != seen or state.unmarked or (mark not in seen and is_stale(mark.revision, view)):
            raise Waiting("Replacing", LOOK_AGAIN)

    async def prune(self, state: DataflowState, meta: Meta) -> None:
        """Stored revisions that nothing names any more go."""
        await self._world.revisions.prune(meta, {mark.name for mark in state.marks})


@contextmanager
def _marking(state: DataflowState) -> Iterator[None]:
    """Meanwhile nobody else writes a status, which would be of before or of after."""
    state.marking = True
    try:
        yield
    finally:
        state.marking = False


def promote(book: ShardBook, state: DataflowState) -> None:
    """Its pending revision has taken over; its own status says so later."""
    if state.pending is None or state.active is None:
        return
    old, state.active, state.pending, state.unmarked = state.active, state.pending.mark, None, True
    state.plan, state.held_back, state.obstacle, state.pending_waiting = Stored(state.active.name), None, "", ""
    retire(book, state, old)


def roll_forward(book: ShardBook, states: Sequence[DataflowState]) -> None:
    """Everything is loaded: pending revisions whose replacement has taken over have done so, whatever their own
    statuses say."""
    serving = {(s.key.name, s.active.name) for s in states if s.active}
    for state in states:
        together = state.pending and state.pending.together
        if together and together.dataflow != state.key.name and (together.dataflow, together.revision) in serving:
            promote(book, state)


def revision_status(mark: ActiveRevision) -> Revision:
    revision = mark.revision
    return Revision(
        mark.name,
        mark.generation,
        mark.spec_digest,
        revision.identity,
        revision.description.as_of,
        revision.writer_term,
    )


def document(mark: ActiveRevision) -> dict[str, Any]:
    return revision_status(mark).document()


def pending_document(pending: PendingRevision) -> dict[str, Any]:
    """As status has it, but for the exports, which are reported later."""
    together = {"dataflow": pending.together.dataflow, "revision": pending.together.revision}
    return {"revision": document(pending.mark), "together": together, "exports": []}
