"""Conditions of a Dataflow that waits for a quarantined one, or hydrates alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.controller.harness import INPUT, LAG, TERM, at
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.handlers.revised_dataflows import dataflow, rev
from tests.protocol.samples import SHARD
from tests.resources.manifests import body
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages.responses import Description, Frontiers

R1 = ReplicaId("r1")
SPEC = {"instance": "default", "sql": "SELECT * FROM a", "index": {"key": ["x"]}}


class Reading(OperatorHarness):
    """Dataflow b reads an index of Dataflow a, on a replica that answers."""

    def __init__(self) -> None:
        super().__init__()
        self.put(READABLE, ONE)
        running = self.context.running("ns", "default")
        assert running is not None
        self.running: RunningInstance = running
        running.core.shards.register(INPUT, SHARD.location, LAG)
        running.core.shards.observe(INPUT, at(500), at(0))
        self.restart("first")
        for mark in (rev("a", 1), rev("b", 1, imports=["a/i/1"], tables=())):
            state = dataflow(mark.name[0], mark)
            self.context.registry.put_dataflow(state)
            description = replace(mark.revision.description, as_of=Time(300))
            running.core.create(Dataflow(state.installation(mark), description, LAG), TERM)

    def restart(self, incarnation: str) -> None:
        connection = self.running._connections = self.running._connections + 1
        self.running.described(R1, connection, Description(incarnation, None, 0, (), (), ()))

    def stands(self, a: HydrationStanding) -> None:
        self.running.core.hydration_policy.standing = lambda owner: a if owner == "ns/a/1" else HydrationStanding.CLEAR
        self.restart("next")
        self.running.maintain()

    def says(self, name: str) -> dict[str, dict[str, Any]]:
        """Its conditions, by type."""
        written = body("Dataflow", SPEC, name, uid=name)
        status = status_of(self.context, key_of(DATAFLOWS, written), written, 0)
        assert status is not None
        return {condition["type"]: condition for condition in status["conditions"]}


def play(scenario: Callable[[Reading], None]) -> None:
    async def played() -> None:
        reading = Reading()
        try:
            scenario(reading)
        finally:
            await reading.fleet.close()

    asyncio.run(played())


def test_an_importer_of_a_quarantined_dataflow_names_it() -> None:
    """At once, also where a replica comes and goes; not where it is hydrated, and not once that one is released."""

    def scenario(reading: Reading) -> None:
        reading.stands(HydrationStanding.QUARANTINED)
        reading.running.attach(ReplicaId("r2"), "unix:///nowhere")
        for _ in range(2):
            message = reading.says("b")
            assert {message[type]["reason"] for type in ("Scheduled", "Ready", "Progressing")} == {"InputQuarantined"}
            assert "an index of Dataflow a, which is quarantined" in message["Scheduled"]["message"]
            reading.running.core.dataflows.seed({GlobalId("a/i/1"): at(400)})  # as an earlier operator wrote it down
            reading.running.maintain()

        reading.stands(HydrationStanding.CLEAR)
        assert reading.says("b")["Scheduled"]["reason"] == "Scheduled"
        reading.stands(HydrationStanding.QUARANTINED)
        reported = [Frontiers(GlobalId(f"{name}/i/1"), at(400), at(400), at(400)) for name in "ab"]
        reading.running.received(R1, reading.running._connections, reported)
        assert reading.says("b")["Hydrated"]["status"] == "True"

    play(scenario)


def test_a_dataflow_that_waits_for_a_slot_names_its_predecessors() -> None:
    """A Dataflow that replicas died of hydrates alone."""

    def scenario(reading: Reading) -> None:
        reading.running.core.dataflows.seed({GlobalId("a/i/1"): at(400)})
        reading.running.maintain()
        assert reading.says("b")["Hydrated"]["message"] == "waits for its turn; 0 of 1 exports are hydrated"
        assert reading.says("a")["Hydrated"]["message"] == "0 of 1 exports are hydrated"
        reading.stands(HydrationStanding.SUSPECT)
        assert reading.says("b")["Hydrated"]["message"] == (
            "waits for its turn; Dataflow a hydrates on replica r1, alone, as replicas died of it; "
            "0 of 1 exports are hydrated"
        )
        assert reading.says("a")["Hydrated"]["message"] == "0 of 1 exports are hydrated"

    play(scenario)
