"""Marks: the status names the active and the pending revision before anything is done about them.

    store     the plan is stored in a ControllerRevision, after its inputs are protected
    serve     status.revision, and no status.pending               the only one; a pending one is given up
    pend      status.pending                                       beside the active one
    commit    status.revision of the Dataflow that was edited      at this moment all members take over
    catch up  status.revision of each other member                 after the fact
    load      reads them again                                     a new operator

An operator that begins after a crash draws the same conclusion: a pending revision has taken over if its replacement is
marked as active of the edited Dataflow. Marks of a namespace are set one at a time, under a lock. A decision that was
made before waiting for the lock is checked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tidemark_operator.catalogue.dataflow_state import DataflowState, PendingRevision, ReplacementId, RevisionSet
from tidemark_operator.catalogue.replacement_closure import as_replaced, is_stale
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.errors import RevisionUnreadable, Waiting
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.holds.revision_holds import hold_inputs, retire
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.publish.status_documents import present
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.kube.revisions import RevisionOwner, parse_revision
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent
from tidemark_operator.resources.conditions.frontier import parse_frontier
from tidemark_operator.resources.manifest.meta import Meta
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId

LOG = logging.getLogger(__name__)


class RevisionMarks:
    def __init__(self, context: ReconcileContext, publisher: StatusPublisher) -> None:
        self._context, self._publisher = context, publisher
        self._locks: dict[str, asyncio.Lock] = {}

    def lock(self, namespace: str) -> asyncio.Lock:
        """Held while a mark in the namespace is set."""
        return self._locks.setdefault(namespace, asyncio.Lock())

    async def load(self, state: DataflowState, status: Mapping[str, Any]) -> None:
        """Reads the revisions that the status names, unless they are known. A pending revision that cannot be read is
        left out, and is planned again.

        Raises:
            RevisionUnreadable: of the active revision.
        """
        if state.active is not None or not status.get("revision"):
            return
        active = await self._read(state, status["revision"])
        if active is None:
            return
        pending = await self._read_pending(state, status.get("pending"))
        state.revisions = RevisionSet(active, pending, reached=shown_frontiers(status))
        hold_inputs(self._context.fleet.book(state.key.namespace), state)

    async def _read_pending(self, state: DataflowState, status: Mapping[str, Any] | None) -> PendingRevision | None:
        if not status:
            return None
        try:
            mark = await self._read(state, status["revision"])
        except RevisionUnreadable as error:
            LOG.warning("%s: its pending revision cannot be read, and is planned again: %s", state.key, error)
            return None
        together = status["together"]
        return PendingRevision(mark, ReplacementId(together["dataflow"], together["revision"])) if mark else None

    async def _read(self, state: DataflowState, marked: Mapping[str, Any]) -> ActiveRevision | None:
        revision = await self._context.revisions.load(state.key.namespace, marked["name"], DataflowRevision)
        if revision is None:
            return None
        number = int(marked["name"].rpartition("-r")[2])
        generation = int(marked.get("generation", 0))
        replan = marked.get("replan", revision.replan)
        return ActiveRevision(marked["name"], number, generation, marked["specDigest"], revision, replan)

    async def protect(self, namespace: str, parents: Sequence[Parent]) -> None:
        """Puts the finalizer on every parent, so that it outlives its readers.

        Raises:
            Waiting: a parent is being deleted.
        """
        for parent in parents:
            resource = DATA_SOURCES if parent.kind == DATA_SOURCES.kind else DATAFLOWS
            key = Key(resource, namespace, parent.name)
            if not await set_finalizer(self._context.kube, self._context.cache, key, wanted=True):
                raise Waiting("WaitingForInput", f"{parent} is being deleted")

    async def stored(self, meta: Meta) -> dict[int, DataflowRevision]:
        """All stored revisions of a Dataflow, by number. The newest one is never removed, so that no number and no
        writer term is given twice."""
        bodies = await self._context.revisions.of(meta)
        return {int(body["revision"]): parse_revision(body, DataflowRevision) for body in bodies}

    async def store(
        self, state: DataflowState, meta: Meta, stored: dict[int, DataflowRevision], revision: DataflowRevision
    ) -> ActiveRevision:
        """Stores the revision. A stored revision of the same identity is used instead, if it is newer than the active
        one; an older one has a writer term that is too low."""
        floor = state.active.number if state.active else 0
        same = [n for n, known in stored.items() if known.identity == revision.identity and n > floor]
        number = max(same) if same else 1 + max(stored, default=0)
        revision = stored[number] if same else revision
        owner = RevisionOwner(state.key.resource.api_version, state.key.resource.kind, meta)
        name = await self._context.revisions.store(owner, number, revision)
        return ActiveRevision(name, number, meta.generation, revision.spec_digest, revision, revision.replan)

    async def serve(self, state: DataflowState, meta: Meta, mark: ActiveRevision, alone: bool = False) -> None:
        """Makes the revision the active one, and gives up a pending one. `alone`: no other revision is stored.

        Raises:
            Waiting: the revisions changed while this waited for the lock.
        """
        known = state.marks
        async with self.lock(state.key.namespace):
            self._check(state, known, mark, None)
            with _marking(state):
                await self._publisher.store(state.key, {"revision": document(mark), "pending": None}, state.uid)
            before = state.marks
            state.revisions = replace(state.revisions, active=mark, pending=None)
            book = self._context.fleet.book(state.key.namespace)
            for old in before:
                if old.number != mark.number:
                    retire(book, state, old)
            if all(old.number != mark.number for old in before):
                hold_inputs(book, state)
        if not alone:
            await self.prune(state, meta)

    async def pend(self, state: DataflowState, meta: Meta, pending: PendingRevision) -> None:
        """Makes the revision the pending one, in place of an earlier one.

        Raises:
            Waiting: the revisions changed while this waited for the lock.
        """
        known = state.marks
        async with self.lock(state.key.namespace):
            self._check(state, known, pending.mark, pending.replacement)
            with _marking(state):
                await self._publisher.store(state.key, {"pending": pending_document(pending)}, state.uid)
            book = self._context.fleet.book(state.key.namespace)
            if state.pending is not None and state.pending.mark.number != pending.mark.number:
                retire(book, state, state.pending.mark)
            state.revisions = replace(state.revisions, pending=pending)
            hold_inputs(book, state, only=pending.mark)
        await self.prune(state, meta)

    async def commit(self, root: DataflowState, members: Sequence[DataflowState]) -> None:
        """Marks the pending revision of the edited Dataflow as active: at this moment all members take over. The caller
        holds the lock, and has checked since that they may."""
        assert root.pending is not None
        with _marking(root):
            status = {"revision": document(root.pending.mark), "pending": None}
            await self._publisher.store(root.key, status, root.uid)
        for member in members:
            promote(self._context.fleet.book(member.key.namespace), member)
        root.revisions = replace(root.revisions, unmarked=False)

    async def catch_up(self, state: DataflowState, meta: Meta) -> None:
        """Writes its active revision into its status, if it took over with the edit of another Dataflow."""
        if not state.revisions.unmarked or state.active is None:
            return
        async with self.lock(state.key.namespace):
            pending = pending_document(state.pending) if state.pending else None
            with _marking(state):
                status = {"revision": document(state.active), "pending": pending}
                await self._publisher.store(state.key, status, state.uid)
            state.revisions = replace(state.revisions, unmarked=False)
        await self.prune(state, meta)

    def _check(
        self,
        state: DataflowState,
        known: tuple[ActiveRevision, ...],
        mark: ActiveRevision,
        together: ReplacementId | None,
    ) -> None:
        """Raises Waiting where a decision that was made on the `known` revisions does not hold any more."""
        view = as_replaced(self._context.registry.dataflows(state.key.namespace), together)
        is_new_and_stale = mark not in known and is_stale(mark.revision, view)
        if state.marks != known or state.revisions.unmarked or is_new_and_stale:
            raise Waiting("Replacing", "its revisions changed meanwhile")

    async def prune(self, state: DataflowState, meta: Meta) -> None:
        """Deletes stored revisions that are neither active nor pending."""
        await self._context.revisions.prune(meta, {mark.name for mark in state.marks})


@contextmanager
def _marking(state: DataflowState) -> Iterator[None]:
    """Meanwhile no other status of the Dataflow is written: it would mix revisions of before and after."""
    state.revisions = replace(state.revisions, marking=True)
    try:
        yield
    finally:
        state.revisions = replace(state.revisions, marking=False)


def promote(book: ShardBook, state: DataflowState) -> None:
    """The pending revision becomes the active one. The status says so later (`catch_up`)."""
    if state.pending is None or state.active is None:
        return
    old = state.active
    state.revisions = replace(state.revisions, active=state.pending.mark, pending=None, unmarked=True)
    retire(book, state, old)


def roll_forward(book: ShardBook, states: Sequence[DataflowState]) -> None:
    """Promotes pending revisions whose replacement has taken over. Called once, when all Dataflows are loaded."""
    serving = {(s.key.name, s.active.name) for s in states if s.active}
    for state in states:
        together = state.pending and state.pending.replacement
        if together and together.dataflow != state.key.name and (together.dataflow, together.revision) in serving:
            promote(book, state)


def document(mark: ActiveRevision) -> dict[str, Any]:
    """A stored plan, as the status names it."""
    revision = mark.revision
    return present(
        name=mark.name,
        generation=mark.generation,
        specDigest=mark.spec_digest,
        planDigest=revision.identity,
        asOf=revision.description.as_of,
        writerTerm=revision.writer_term,
        replan=mark.replan or None,
    )


def pending_document(pending: PendingRevision, exports: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The pending revision as the status has it. Later reports fill in its exports."""
    together = {"dataflow": pending.replacement.dataflow, "revision": pending.replacement.revision}
    return {"revision": document(pending.mark), "together": together, "exports": [*exports]}


def shown_frontiers(status: Mapping[str, Any]) -> dict[GlobalId, Frontier]:
    """Write frontiers that the status shows, by compute id. A write frontier that users saw never goes back."""
    exports = [*(status.get("exports") or ()), *((status.get("pending") or {}).get("exports") or ())]
    shown = {GlobalId(e["id"]): parse_frontier(e.get("writeFrontier")) for e in exports if "id" in e}
    return {id: frontier for id, frontier in shown.items() if frontier is not None}
