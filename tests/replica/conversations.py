"""Messages of scripted clients, and the responses that they wait for."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.commands import AllowWrites, Command, CreateDataflow, Schedule
from tidemark_protocol.messages.responses import Frontiers, Response
from tidemark_protocol.plan.dataflow import DataflowDescription


def started(*dataflows: DataflowDescription) -> list[Command]:
    """Created, scheduled, their materialized views allowed to write."""
    commands: list[Command] = [CreateDataflow(d) for d in dataflows]
    commands += [Schedule(id) for d in dataflows for id in d.export_ids]
    return commands + [AllowWrites(e.id, WriterTerm(1)) for d in dataflows for e in d.sink_exports]


def furthest(kind: str, id: str) -> Callable[[list[Response]], Frontier]:
    """The last reported frontier of a kind."""

    def last(responses: list[Response]) -> Frontier:
        found = [getattr(r, kind) for r in responses if isinstance(r, Frontiers) and r.id == id]
        return max((f for f in found if f is not None), default=Frontier.minimum())

    return last


def reaches(kind: str, id: str, time: int) -> Callable[[list[Response]], Any]:
    return lambda responses: furthest(kind, id)(responses) >= Frontier.at(time)


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"
