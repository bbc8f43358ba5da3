"""Hydration slots: which revisions hydrate on which replica, recorded before they are scheduled; and blame for deaths.

    the gate admits a revision ─► status.hydrating of the ComputeReplica {incarnation, dataflows} ─► Schedule is sent
                                  (status.hydratingIn.<shape> where a process is one shape of several)
    a replica answers with another incarnation than the record's ─► the recorded revisions are blamed
    a hydration runs out of memory, and the replica survives     ─► its revision is blamed, as for a death
    blame ─► status.suspects of the Dataflow, before the next record replaces the one that it comes from

A death is known by its incarnation, so a new operator that finds it again does not count it twice. A process that was
told to end did not die. A revision that shared the process, or its memory, with a client's query
(fleet/clients/query_death_count.py) was not alone there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tidemark_operator.catalogue.dataflow_state import DataflowState, name_of
from tidemark_operator.controller.hydration.hydration_gate import MemoryExhaustion
from tidemark_operator.controller.hydration.quarantine import Death, HydrationStanding, Suspicion, blamed
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.hydration.hydration_slot_record import SlotRecord
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.publish.status_documents import suspects_status
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, REPLICAS, ApiError, Body, Invalid
from tidemark_operator.orchestrator.interface import resource_of
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_protocol.ids import ReplicaId

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
PACE_SECONDS = 0.15
"""The pause between two records of a process: one record then has several small hydrations."""


@dataclass(frozen=True)
class Process:
    """A process of a ComputeReplica, in one shape."""

    key: Key
    shape: str

    @staticmethod
    def of(running: RunningInstance, replica: ReplicaId) -> Process:
        name, shape = resource_of(replica)
        return Process(Key(REPLICAS, running.namespace, name), shape)


class HydrationSlots:
    """The records of all replicas. `hydrated` and `greeted` are called on the event loop and never wait."""

    def __init__(self, context: ReconcileContext, publisher: StatusPublisher) -> None:
        self._context, self._publisher = context, publisher
        self._records: dict[Process, SlotRecord] = {}
        self._writers: dict[Process, asyncio.Task[None]] = {}
        self._unsaved: set[Key] = set()
        self._saving = asyncio.Lock()
        self._recording = asyncio.Lock()

    def standing(self, running: RunningInstance, owner: str) -> HydrationStanding:
        """Whether an installed revision is clear, a suspect, or in quarantine."""
        suspicion = self._suspicion(running, owner)
        return suspicion.standing if suspicion else HydrationStanding.CLEAR

    def greeted(self, running: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        """A replica answers. Returns the installations that the record says it hydrates. If its process is not the
        recorded one, the recorded revisions were in the slots when that process died: they are blamed."""
        process = Process.of(running, replica)
        body = self._context.cache.get(process.key)
        if body is None:
            return ()
        record = self._records.get(process) or SlotRecord.of(body, process.shape)
        if record.incarnation == incarnation:
            return tuple(state.installation(mark) for state, mark in self._recorded(running, record))
        if self._died(body["metadata"]["uid"], process.shape):
            alone = not running.died(replica) and len(record.revisions) == 1
            for state, mark in self._recorded(running, record):
                self._blame(state, mark, Death(replica, record.incarnation), alone=alone)
        self._records[process] = SlotRecord(incarnation)
        return ()

    def hydrated(self, running: RunningInstance, owner: str) -> None:
        """A suspect is hydrated: its blame goes."""
        if found := self._mark(running, owner):
            found[0].obstacles.suspicions.pop(found[1].name, None)

    def ran_out(self, running: RunningInstance, replica: ReplicaId, ran_out: MemoryExhaustion) -> None:
        """A hydration ran out of memory: blamed as for a death, which it is where all processes share their memory."""
        state = running.replicas.get(replica)
        found = self._mark(running, ran_out.owner)
        if state is not None and state.description is not None and found is not None:
            attempt = f"{state.description.incarnation}#{ran_out.attempt}"
            alone = ran_out.was_alone and not running.client_work(replica).computed
            self._blame(*found, Death(replica, attempt), alone=alone)
            self.changed(running, replica)

    def changed(self, running: RunningInstance, replica: ReplicaId) -> None:
        """The slots of the replica differ from its record: it is written again."""
        process = Process.of(running, replica)
        writer = self._writers.get(process)
        if (
            writer is None or writer.done()
        ):  # a task that is done does not see this change, also before its callback has run
            task = asyncio.create_task(self._write(running, replica, process), name=f"slots of {process}")
            self._writers[process] = task
            task.add_done_callback(partial(self._on_end, process))

    def forget(self, key: Key) -> None:
        """The ComputeReplica is gone."""
        for process in [process for process in self._records if process.key == key]:
            del self._records[process]

    async def close(self) -> None:
        writers = list(self._writers.values())
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)

    def _on_end(self, process: Process, task: asyncio.Task[None]) -> None:
        if self._writers.get(process) is task:
            del self._writers[process]
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error(
                "the record of hydrations on %s was not written; it is tried again at the next change",
                process,
                exc_info=error,
            )

    async def _write(self, running: RunningInstance, replica: ReplicaId, process: Process) -> None:
        """Writes records until the last one equals the slots. Nothing is scheduled while the API server does not
        answer. A revision that left its slot and returned in between is recorded as usual: it is scheduled once its
        blame is saved."""
        namespace = process.key.namespace
        while (slots := running.unrecorded(replica)) is not None or self._next_blamed(namespace) is not None:
            body = self._context.cache.get(process.key)
            if body is None:
                return
            try:
                await self._save_blame(namespace)
                if slots is None:
                    continue
                marks = [found for owner in slots.owners if (found := self._mark(running, owner)) is not None]
                entries = [{"dataflow": state.key.name, "revision": mark.name} for state, mark in marks]
                document = {"incarnation": slots.incarnation, "dataflows": entries}
                await self._store(running, process, document, body["metadata"]["uid"])
            except ApiError as error:
                LOG.warning("the record of hydrations on %s cannot be written yet: %s", process, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            names = tuple(entry["revision"] for entry in entries)
            self._records[process] = SlotRecord(slots.incarnation, names)
            running.recorded(replica, slots)
            await asyncio.sleep(PACE_SECONDS)
        running.confirm(replica)

    async def _store(self, running: RunningInstance, process: Process, document: Body, uid: str) -> None:
        """Writes the record. Shapes share a field: they are written one at a time, and shapes that are gone are left
        out."""
        if not process.shape:
            await self._publisher.store(process.key, {"hydrating": document}, uid)
            return
        async with self._recording:
            status = (self._context.cache.get(process.key) or {}).get("status") or {}
            shapes = {resource_of(replica)[1] for replica in running.replicas}
            others = {s: record for s, record in (status.get("hydratingIn") or {}).items() if s in shapes}
            await self._publisher.store(process.key, {"hydratingIn": {**others, process.shape: document}}, uid)

    async def _save_blame(self, namespace: str) -> None:
        """Saves all blame of the namespace, also what is added meanwhile. Blame that the API server refuses for good
        does not keep revisions from hydrating: this operator remembers it until it ends."""
        async with self._saving:
            while (key := self._next_blamed(namespace)) is not None:
                state = self._context.registry.dataflow(key)
                suspects = suspects_status(state.obstacles.suspicions.values()) if state else None
                if state is not None:
                    try:
                        await self._publisher.store(key, {"suspects": suspects}, state.uid)
                    except Invalid as error:
                        LOG.error("the API server refuses the blame of %s: %s", key, error)
                if state is None or suspects == suspects_status(state.obstacles.suspicions.values()):
                    self._unsaved.discard(key)

    def _next_blamed(self, namespace: str) -> Key | None:
        """A Dataflow whose blame is to be saved. Namespaces do not wait for each other."""
        return next((key for key in self._unsaved if key.namespace == namespace), None)

    def _blame(self, state: DataflowState, mark: ActiveRevision, death: Death, *, alone: bool) -> None:
        suspicion = blamed(state.obstacles.suspicions.get(mark.name), mark.name, death, state.spec.release, alone=alone)
        what = "%s was hydrating when replica %s died, or ran out of memory: %s"
        LOG.warning(what, mark.name, death.replica, suspicion.standing.value)
        state.obstacles.suspicions[mark.name] = suspicion
        self._unsaved.add(state.key)

    def _died(self, uid: str, shape: str) -> bool:
        """Whether the earlier process ended by itself. If nothing is known of its end: a pod tells how its container
        ended as long as the pod exists, so it was deleted; a local process whose record is lost may have died."""
        observed = [each for each in self._context.orchestrator.observe(uid) if each.shape == shape]
        last = observed[0].last_exit if observed else None
        return not shape if last is None else last.reason in ("Crashed", "Killed", "OOMKilled")

    def _recorded(self, running: RunningInstance, record: SlotRecord) -> Iterator[tuple[DataflowState, ActiveRevision]]:
        for state in self._context.registry.dataflows(running.namespace):
            yield from ((state, mark) for mark in state.marks if mark.name in record.revisions)

    def _suspicion(self, running: RunningInstance, owner: str) -> Suspicion | None:
        found = self._mark(running, owner)
        return found and found[0].obstacles.suspicions.get(found[1].name)

    def _mark(self, running: RunningInstance, owner: str) -> tuple[DataflowState, ActiveRevision] | None:
        state = self._context.registry.dataflow(Key(DATAFLOWS, running.namespace, name_of(owner)))
        marks = [mark for mark in state.marks if state.installation(mark) == owner] if state else []
        return (state, marks[0]) if state is not None and marks else None
