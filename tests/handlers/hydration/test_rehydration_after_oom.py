"""A dataflow ran out of memory and has a slot again before the loss of its slot was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.controller.harness import INDEX, LAG, TERM
from tests.controller.scripted import Listening, ScriptedReplica, complete, play
from tests.handlers.hydration.test_hydration_slots import D1, R1, Writing, slots
from tests.protocol.samples import dataflow as description
from tidemark_operator.controller.controller_events import HydrationOutOfMemory, Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.hydration.hydration_slots import HydrationSlots
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import ApiError
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import OUT_OF_MEMORY, Failure, FailureKind

__all__ = ["play"]


class Recording(Listening):
    """Does what the operator does: records the dataflows that are let in, and blames those that ran out of memory."""

    def __init__(self, of: HydrationSlots) -> None:
        super().__init__()
        self._slots = of

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        self._slots.changed(instance, replica)

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        if isinstance(notice, HydrationOutOfMemory):
            self._slots.ran_out(instance, notice.replica, notice.ran_out)


def test_a_slot_granted_again_before_its_loss_was_recorded_is_scheduled(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is true again, so nothing is left to write."""
    monkeypatch.setattr("tidemark_operator.handlers.hydration.hydration_slots.RETRY_SECONDS", 0.0)

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        writing = Writing()
        of = slots(writing)
        instance._listener = Recording(of)
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow(D1, description("d", 300), LAG), TERM)
        instance.flush()

        def scheduled() -> int:
            return sum(isinstance(m, c.Schedule) and m.id == INDEX for m in replica.streams[0])

        async def fails(key: Key, status: dict[str, Any], uid: str) -> None:
            monkeypatch.setattr(writing, "store", store)
            instance.maintain()
            assert instance.core.occupants(R1) == (D1,)
            raise ApiError(0, "the API server does not answer")

        await replica.until(lambda: scheduled() == 1)
        store = writing.store
        monkeypatch.setattr(writing, "store", fails)
        replica.say(Failure(INDEX, FailureKind.STEP, "no memory", OUT_OF_MEMORY, 1))
        await replica.until(lambda: scheduled() == 2)
        assert writing.deaths() == [[R1]]
        assert of.standing(instance, D1) is HydrationStanding.SUSPECT
        await of.close()

    play(scenario)
