"""Peeks in the model: each is answered once with the contents at its time, unless no replica is left.

asked ──► every replica that is connected, or the target ──► rows │ an error of one alone: another may answer
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark_operator.controller.answers.peeks import PATIENCE_MS, PeekAnswer
from tidemark_protocol.ids import GlobalId, ReplicaId, Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekError, PeekResponse, PeekRows
from tidemark_protocol.plan.map_filter_project import MapFilterProject

if TYPE_CHECKING:
    from tests.model.simulation import Simulation

_EVERY = MapFilterProject(())


def peek(uuid: str, index: GlobalId, time: int) -> Peek:
    return Peek(uuid, IndexTarget(index), Time(time), _EVERY, Finishing(), ())


@dataclass
class Question:
    """`failed`: replicas that have said so, on connections that still are, and when."""

    peek: Peek
    target: ReplicaId | None = None
    failed: dict[ReplicaId, int] = field(default_factory=dict)


class Questions:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.asked: dict[str, Question] = {}
        self.answered: set[str] = set()

    @property
    def waiting(self) -> list[str]:
        """Not answered yet."""
        return [uuid for uuid in self.asked if uuid not in self.answered]

    def ask(self, peek: Peek, target: ReplicaId | None = None) -> None:
        self.asked[peek.uuid] = Question(peek, target)
        self._simulation.take(self._simulation.instance.peek(peek, target))

    def give_up(self, uuid: str) -> None:
        del self.asked[uuid]
        self._simulation.instance.cancel_peek(uuid)

    def fail(self, name: ReplicaId, uuid: str) -> None:
        """The replica's disk is full."""
        if name in self._simulation.connections:
            self.asked[uuid].failed[name] = self._simulation.now
            self._simulation.said(name, PeekResponse(uuid, PeekError("the disk is full")))

    def lose(self, replica: ReplicaId) -> None:
        """Before the controller knows."""
        for question in self.asked.values():
            question.failed.pop(replica, None)

    def count(self, answer: PeekAnswer) -> Question | None:
        """Count the client, if it still waits."""
        assert answer.uuid not in self.answered, "answered twice"
        self.answered.add(answer.uuid)
        return self.asked.get(answer.uuid)

    def take(self, answer: PeekAnswer) -> None:
        if question := self.count(answer):
            owner = question.peek.target.id.removesuffix("-index")
            expected = PeekRows(str(question.peek.timestamp).encode(), 1)
            may_fail = owner not in self._simulation.stored or self._nobody_is_left(question)
            assert answer.result == expected or may_fail, answer.result

    def settle(self) -> None:
        assert not set(self.asked) - self.answered, "every peek was answered"

    def is_told(self, name: ReplicaId, owner: str) -> bool:
        """Whether the image of a replica that is connected knows all that the Dataflow needs, and those it reads."""
        stored = self._simulation.stored[owner]
        understood = stored.description.required_features.issubset(self._simulation.replicas[name].understands)
        return understood and (stored.reads is None or self.is_told(name, stored.reads))

    def _nobody_is_left(self, question: Question) -> bool:
        """To answer; or, some time after one has failed, none that is known to be at it."""
        owner = question.peek.target.id.removesuffix("-index")
        connected = {name for name in self._simulation.connections if self.is_told(name, owner)}
        left = (connected if question.target is None else {question.target} & connected) - question.failed.keys()
        is_late = any(self._simulation.now - at >= PATIENCE_MS for at in question.failed.values())
        is_answered = self._simulation.instance.dataflows.is_answered
        return not left or (is_late and not any(is_answered(question.peek, replica) for replica in left))
