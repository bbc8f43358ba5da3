"""Who is hydrating where, written down before it is scheduled; and who is blamed when a replica dies of it.

    gate admits ─► status.hydrating of the ComputeReplica {incarnation, dataflows} ─► Schedule is sent
    a replica answers as another incarnation than it says there ─► what stands there is blamed
    blame ─► status.suspects of the Dataflow, before the next record takes the place of the one that it came from

A death is known by its incarnation, so an operator that finds it a second time does not count it twice. A process that
was told to end is no death.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tidemark_operator.catalogue.registry import DataflowState, name_of
from tidemark_operator.controller.quarantine import Death, Standing, blamed
from tidemark_operator.fleet.running import RunningInstance
from tidemark_operator.handlers.publisher import Publisher
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS, REPLICAS, ApiError, Body
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_operator.resources.status import suspects_status
from tidemark_protocol.ids import ReplicaId

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Record:
    """What a ComputeReplica's status says: names of revisions that a process of it hydrates."""

    incarnation: str = ""
    revisions: tuple[str, ...] = ()

    @staticmethod
    def of(body: Body | None) -> Record:
        found = ((body or {}).get("status") or {}).get("hydrating") or {}
        return Record(found.get("incarnation", ""), tuple(d["revision"] for d in found.get("dataflows") or ()))


class Slots:
    """All replicas' records. `hydrated` and `greeted` are called on the event loop and never wait."""

    def __init__(self, world: World, publisher: Publisher) -> None:
        self._world, self._publisher = world, publisher
        self._written: dict[Key, Record] = {}
        self._writers: dict[Key, asyncio.Task[None]] = {}
        self._unsaved: set[Key] = set()
        self._saving = asyncio.Lock()

    def standing(self, running: RunningInstance, owner: str) -> Standing:
        """Of something installed."""
        found = self._mark(running, owner)
        suspicion = found and found[0].suspicions.get(found[1].name)
        return suspicion.standing if suspicion else Standing.CLEAR

    def greeted(self, running: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        """A replica answers: what it is hydrating, by the names under which that is installed. Where the process is
        another one than that of the record, what stands there was in the slots when it died."""
        key = Key(REPLICAS, running.namespace, replica)
        body = self._world.cache.get(key)
        if body is None:
            return ()
        record = self._written.get(key) or Record.of(body)
        if record.incarnation == incarnation:
            return tuple(state.installation(mark) for state, mark in self._recorded(running, record))
        if self._died(body["metadata"]["uid"]):
            for state, mark in self._recorded(running, record):
                self._blame(state, mark, Death(replica, record.incarnation), alone=len(record.revisions) == 1)
        self._written[key] = Record(incarnation)
        return ()

    def hydrated(self, running: RunningInstance, owner: str) -> None:
        """It was a suspect: innocent."""
        if found := self._mark(running, owner):
            found[0].suspicions.pop(found[1].name, None)

    def changed(self, running: RunningInstance, replica: ReplicaId) -> None:
        """Others are in the slots than were written down."""
        key = Key(REPLICAS, running.namespace, replica)
        writer = self._writers.get(key)
        if writer is None or writer.done():  # done, and its callback is still to come: it has seen nothing of this
            task = asyncio.create_task(self._write(running, replica, key), name=f"slots of {key}")
            self._writers[key] = task
            task.add_done_callback(partial(self._ended, key))

    def forget(self, key: Key) -> None:
        """The ComputeReplica is gone."""
        self._written.pop(key, None)

    async def close(self) -> None:
        writers = list(self._writers.values())
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._writers.get(key) is task:
            del self._writers[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("writing down who hydrates on %s failed: it is tried again", key, exc_info=error)

    async def _write(self, running: RunningInstance, replica: ReplicaId, key: Key) -> None:
        """Until what is written is what is so; nothing is scheduled while the API server does not answer."""
        while (slots := running.unrecorded(replica)) is not None:
            body = self._world.cache.get(key)
            if body is None:
                return
            marks = [found for owner in slots.owners if (found := self._mark(running, owner)) is not None]
            entries = [{"dataflow": state.key.name, "revision": mark.name} for state, mark in marks]
            status = {"hydrating": {"incarnation": slots.incarnation, "dataflows": entries}}
            try:
                await self._save_blame()
                await self._publisher.store(key, status, body["metadata"]["uid"])
            except ApiError as error:
                LOG.warning("who hydrates on %s cannot be written down yet: %s", key, error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            names = tuple(entry["revision"] for entry in entries)
            self._written[key] = Record(slots.incarnation, names)
            running.recorded(replica, slots)

    async def _save_blame(self) -> None:
        """Until all is saved: there may be further blame while some is written."""
        async with self._saving:
            while self._unsaved:
                key = next(iter(self._unsaved))
                state = self._world.registry.dataflow(key)
                suspects = suspects_status(state.suspicions.values()) if state else None
                if state is not None:
                    await self._publisher.store(key, {"suspects": suspects}, state.uid)
                if state is None or suspects == suspects_status(state.suspicions.values()):
                    self._unsaved.discard(key)

    def _blame(self, state: DataflowState, mark: ActiveRevision, death: Death, *, alone: bool) -> None:
        suspicion = blamed(state.suspicions.get(mark.name), mark.name, death, state.release, alone=alone)
        LOG.warning("%s was hydrating when replica %s died: %s", mark.name, death.replica, suspicion.standing.value)
        state.suspicions[mark.name] = suspicion
        self._unsaved.add(state.key)

    def _died(self, uid: str) -> bool:
        """Whether the process before ended by itself."""
        observed = self._world.orchestrator.observe(uid)
        last = observed.last_exit if observed else None
        return last is None or last.reason in ("Crashed", "Killed", "OomKilled")

    def _recorded(self, running: RunningInstance, record: Record) -> Iterator[tuple[DataflowState, ActiveRevision]]:
        for state in self._world.registry.dataflows(running.namespace):
            yield from ((state, mark) for mark in state.marks if mark.name in record.revisions)

    def _mark(self, running: RunningInstance, owner: str) -> tuple[DataflowState, ActiveRevision] | None:
        state = self._world.registry.dataflow(Key(DATAFLOWS, running.namespace, name_of(owner)))
        marks = [mark for mark in state.marks if state.installation(mark) == owner] if state else []
        return (state, marks[0]) if state is not None and marks else None
