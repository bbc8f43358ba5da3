"""Hydration slots are recorded before a dataflow hydrates, also while another write is under way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.handlers.revised_dataflows import dataflow, rev
from tests.waiting import BOUND
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.hydration.hydration_gate import MemoryExhaustion
from tidemark_operator.controller.hydration.quarantine import HydrationStanding, SlotOccupants
from tidemark_operator.fleet.clients.query_death_count import ClientWork
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.hydration.hydration_slot_record import SlotRecord
from tidemark_operator.handlers.hydration.hydration_slots import HydrationSlots, Process
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import DATAFLOWS, REPLICAS, ApiError, Invalid
from tidemark_operator.orchestrator.interface import Exit, Observation, Phase
from tidemark_protocol.ids import ReplicaId

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
D, D1 = Key(DATAFLOWS, "ns", "d"), "ns/d/1"


class Writing:
    """In the place of the Publisher: `stored` in order; with a gate, each write waits until it is opened."""

    def __init__(self) -> None:
        self.stored: list[tuple[Key, dict[str, Any]]] = []
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.gate: asyncio.Queue[None] | None = None
        self.refused: dict[Key, ApiError] = {}

    async def store(self, key: Key, status: dict[str, Any], uid: str) -> None:
        self.begun.put_nowait(None)
        if key in self.refused:
            raise self.refused[key]
        if self.gate is not None:
            await self.gate.get()
        self.stored.append((key, status))

    def deaths(self) -> list[list[str]]:
        """The deaths of d, as they were written."""
        suspects = [status["suspects"] for key, status in self.stored if key == D]
        return [[death["replica"] for s in some for death in s["deaths"]] for some in suspects]


class Occupying:
    """In the place of the instance: who is in the slots of each replica, and who of them is written down."""

    namespace = "ns"

    def __init__(self) -> None:
        self.owners: dict[ReplicaId, tuple[str, ...]] = {}
        self.written: dict[ReplicaId, tuple[str, ...]] = {}
        self.replicas: dict[ReplicaId, Any] = {}
        self.asked = False

    def died(self, replica: ReplicaId) -> bool:
        return self.asked

    def client_work(self, replica: ReplicaId) -> ClientWork:
        return ClientWork(["p"] if self.asked else [], self.asked)

    def unrecorded(self, replica: ReplicaId) -> SlotOccupants | None:
        owners = self.owners.get(replica, ())
        return None if owners == self.written.get(replica, ()) else SlotOccupants("i2", owners)

    def recorded(self, replica: ReplicaId, occupied: SlotOccupants) -> None:
        self.written[replica] = occupied.owners

    def confirm(self, replica: ReplicaId) -> None: ...


def slots(writing: Writing) -> HydrationSlots:
    """The slots of a Dataflow d, on two replicas whose processes i1 were hydrating it."""
    cache, registry = Cache(), Registry()
    registry.put_dataflow(dataflow("d", rev("d", 1)))
    for name in (R1, R2):
        hydrating = {"incarnation": "i1", "dataflows": [{"dataflow": "d", "revision": "d-r1"}]}
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}
        cache.put(Key(REPLICAS, "ns", name), {"metadata": metadata, "spec": {}, "status": {"hydrating": hydrating}})
    orchestrator = SimpleNamespace(observe=lambda uid: ())
    context = SimpleNamespace(cache=cache, registry=registry, orchestrator=orchestrator)
    return HydrationSlots(cast(ReconcileContext, context), cast(StatusPublisher, writing))


def test_a_change_at_the_very_end_of_a_write_is_written_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of the task that writes and its callback. (No pause follows the write: the end is the point.)"""
    monkeypatch.setattr("tidemark_operator.handlers.hydration.hydration_slots.PACE_SECONDS", 0.0)

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of = slots(writing)
        instance = cast(RunningInstance, running)
        running.owners[R1] = (D1,)
        of.changed(instance, R1)
        (writer,) = of._writers.values()
        for _ in range(1000):  # a turn of the loop each: a wait would be woken after the callback
            if not writer.done():
                await asyncio.sleep(0)
        assert writer.done()
        running.owners[R1] = ()
        of.changed(instance, R1)
        await asyncio.wait_for(asyncio.gather(*of._writers.values()), BOUND)
        assert running.written[R1] == ()
        await asyncio.sleep(0)
        assert of._writers == {}

    asyncio.run(scenario())


def test_blame_that_comes_while_some_is_written_is_written_before_the_next_record() -> None:
    """A second replica dies of the same Dataflow meanwhile; what stood in its record must not be lost with it."""

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of = slots(writing)
        instance = cast(RunningInstance, running)
        writing.gate = asyncio.Queue()
        of.greeted(instance, R1, "i2")
        running.owners[R1] = (D1,)
        of.changed(instance, R1)
        await asyncio.wait_for(writing.begun.get(), BOUND)
        of.greeted(instance, R2, "i2")
        running.owners[R2] = (D1,)
        of.changed(instance, R2)
        gate, writing.gate = writing.gate, None
        gate.put_nowait(None)
        await asyncio.wait_for(asyncio.gather(*of._writers.values()), BOUND)

        records = [at for at, (key, _) in enumerate(writing.stored) if key.name == R2]
        last = max(at for at, (key, _) in enumerate(writing.stored) if key == D)
        assert writing.deaths()[-1] == [R1, R2]
        assert last < records[0]

    asyncio.run(scenario())


def test_blame_that_cannot_be_written_keeps_no_other_from_hydrating() -> None:
    """The API server never takes the blame; or it is of another namespace, where the operator may write nothing."""

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of = slots(writing)
        instance = cast(RunningInstance, running)
        elsewhere = Key(DATAFLOWS, "elsewhere", "e")
        of._unsaved.add(elsewhere)
        writing.refused = {D: Invalid(422, "suspects"), elsewhere: ApiError(403, "not yours")}
        of.greeted(instance, R1, "i2")
        running.owners[R1] = (D1,)
        of.changed(instance, R1)
        await asyncio.wait_for(asyncio.gather(*of._writers.values()), BOUND)
        assert running.written[R1] == (D1,)
        assert of.standing(instance, D1) is HydrationStanding.SUSPECT
        assert of._unsaved == {elsewhere}

    asyncio.run(scenario())


def test_shapes_of_one_replica_are_written_down_beside_each_other() -> None:
    """Whichever is written last keeps what stands there of the other, and drops what is there no more."""

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of = slots(writing)
        a, b = ReplicaId("r1.a"), ReplicaId("r1.b")
        key = Key(REPLICAS, "ns", "r1")
        body = of._context.cache.get(key)
        assert body is not None
        gone = {"incarnation": "i0", "dataflows": []}
        known = {"incarnation": "i1", "dataflows": [{"dataflow": "d", "revision": "d-r1"}]}
        body["status"] = {"hydratingIn": {"a": known, "gone": gone}}
        running.replicas = dict.fromkeys((a, b))
        instance = cast(RunningInstance, running)

        assert of.greeted(instance, a, "i1") == (D1,)
        assert of.greeted(instance, b, "i2") == ()
        running.owners[b] = (D1,)
        of.changed(instance, b)
        await asyncio.wait_for(asyncio.gather(*of._writers.values()), BOUND)

        new = {"incarnation": "i2", "dataflows": [{"dataflow": "d", "revision": "d-r1"}]}
        assert writing.stored == [(key, {"hydratingIn": {"a": known, "b": new}})]

    asyncio.run(scenario())


EXITS: list[tuple[str, Exit | None, bool]] = [
    ("", None, True),
    ("a", None, False),
    *((shape, Exit(None, 7, "Terminated"), False) for shape in ("", "a")),
    *((shape, Exit(137, 7, "OOMKilled"), True) for shape in ("", "a")),
    *((shape, Exit(1, 7), True) for shape in ("", "a")),
    *((shape, Exit(13, 7, "NoExecutors"), False) for shape in ("", "a")),
]


@pytest.mark.parametrize(("shape", "last", "died"), EXITS)
def test_a_pod_with_an_unknown_end_was_deleted_and_a_process_may_have_died(
    shape: str, last: Exit | None, died: bool
) -> None:
    """A drain of the node while no operator looked is nobody's fault; of a process, the doubt counts as a death."""

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of = slots(writing)
        replica = ReplicaId(f"r1.{shape}") if shape else R1
        body = of._context.cache.get(Key(REPLICAS, "ns", "r1"))
        assert body is not None
        body["status"] = {"hydratingIn": {"a": body["status"]["hydrating"]}} if shape else body["status"]
        seen = Observation(Phase.RUNNING, "a", "i2", last_exit=last, shape=shape)
        cast(Any, of._context.orchestrator).observe = lambda uid: (seen,)
        running.replicas = {replica: None}
        of.greeted(cast(RunningInstance, running), replica, "i2")
        running.owners[replica] = (D1,)
        of.changed(cast(RunningInstance, running), replica)
        await asyncio.wait_for(asyncio.gather(*of._writers.values()), BOUND)

        assert writing.deaths() == ([[replica]] if died else [])

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", [False, True])
def test_a_death_beside_a_clients_query_makes_a_suspect_and_no_quarantine(asked: bool) -> None:
    """The query may be the cause, however often it comes: the innocent would wait for somebody to release it."""

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of, running.asked = slots(writing), asked
        instance = cast(RunningInstance, running)
        for process in range(2, 6):
            of.greeted(instance, R1, f"i{process}")
            hydrating = {"incarnation": f"i{process}", "dataflows": [{"dataflow": "d", "revision": "d-r1"}]}
            of._records[Process.of(instance, R1)] = SlotRecord.of({"status": {"hydrating": hydrating}}, "")
        assert of.standing(instance, D1) is (HydrationStanding.SUSPECT if asked else HydrationStanding.QUARANTINED)

    asyncio.run(scenario())


def test_running_out_of_memory_is_blamed_as_a_death_is_also_where_no_other_is_written_down() -> None:
    """Each attempt once, however often it is told of; the third of them alone is enough for a quarantine."""

    async def scenario() -> None:
        writing, running = Writing(), Occupying()
        of = slots(writing)
        of._records = {Process(Key(REPLICAS, "ns", R1), ""): SlotRecord("i1", ("d-r1",))}
        running.replicas[R1] = SimpleNamespace(description=SimpleNamespace(incarnation="i1"))
        instance = cast(RunningInstance, running)
        for attempt in ("1", "1", "2"):
            of.ran_out(instance, R1, MemoryExhaustion(D1, attempt == "2", attempt))
        assert of.standing(instance, D1) is HydrationStanding.SUSPECT
        of.ran_out(instance, R1, MemoryExhaustion(D1, True, "3"))
        assert of.standing(instance, D1) is HydrationStanding.QUARANTINED

        await asyncio.wait_for(asyncio.gather(*of._writers.values()), BOUND)
        assert writing.deaths()[-1] == [R1] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", [False, True])
def test_running_out_of_memory_beside_a_clients_query_makes_a_suspect_and_no_quarantine(
    asked: bool,
) -> None:
    """The query may have taken the memory."""

    async def scenario() -> None:
        running, of = Occupying(), slots(Writing())
        running.replicas[R1], running.asked = SimpleNamespace(description=SimpleNamespace(incarnation="i1")), asked
        instance = cast(RunningInstance, running)
        for attempt in range(5):
            of.ran_out(instance, R1, MemoryExhaustion(D1, True, str(attempt)))
        assert of.standing(instance, D1) is (HydrationStanding.SUSPECT if asked else HydrationStanding.QUARANTINED)
        await of.close()

    asyncio.run(scenario())
