"""The simulation's state of each connection and of each Dataflow."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.protocol.audit import Audit
from tidemark_protocol.messages.commands import Command
from tidemark_protocol.messages.responses import Response
from tidemark_protocol.plan.dataflow import DataflowDescription


@dataclass
class Connection:
    """The messages under way between a replica and the controller, whose commands are audited."""

    number: int
    inbox: list[Command] = field(default_factory=list)
    outbox: list[Response] = field(default_factory=list)
    audit: Audit = field(default_factory=Audit)


@dataclass
class Stored:
    """A Dataflow whose plan is stored; `reads` is the owner of the index that it imports."""

    description: DataflowDescription
    reads: str | None = None
