"""The truth table of a ComputeReplica: InstanceFound, Online, Ready.

Online is the process and its connection; Ready is Online with every dataflow of the instance hydrated here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.conditions import Verdict, because, no, yes
from tidemark_operator.resources.instance_conditions import READY, InstanceFacts, instance_found

ONLINE = "Online"
TYPES = ("InstanceFound", ONLINE, READY)


@dataclass(frozen=True, slots=True)
class Starting:
    """The process was started and has not answered yet."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The process answers, and runs the operator's commands."""

    dataflows: int
    hydrated: int


@dataclass(frozen=True, slots=True)
class Down:
    """There is no process that answers. `reason` is CamelCase: Crashed, Killed, NotConnected ..."""

    reason: str
    message: str


Process = Starting | Answering | Down


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    instance: InstanceFacts
    suspended: bool
    process: Process


def replica_conditions(facts: ReplicaFacts) -> list[Verdict]:
    """The conditions of a ComputeReplica, in the order of `TYPES`."""
    online = _online(facts)
    return [instance_found(facts.instance), online, _ready(facts.process, online)]


def _online(facts: ReplicaFacts) -> Verdict:
    if not facts.instance.found:
        return no(ONLINE, "InstanceNotFound", f"there is no ComputeInstance {facts.instance.name}")
    if facts.suspended:
        return no(ONLINE, "Suspended", "spec.suspend stops this replica")
    if facts.instance.suspended:
        return no(ONLINE, "InstanceSuspended", f"ComputeInstance {facts.instance.name} is suspended")
    match facts.process:
        case Starting():
            return no(ONLINE, "Starting", "the process was started and has not answered yet")
        case Down(reason, message):
            return no(ONLINE, reason, message)
        case Answering():
            return yes(ONLINE, "Online")


def _ready(process: Process, online: Verdict) -> Verdict:
    if not online.holds or not isinstance(process, Answering):
        return because(READY, online)
    if process.hydrated < process.dataflows:
        return no(READY, "Hydrating", f"{process.hydrated} of {process.dataflows} dataflows are hydrated")
    return yes(READY, "Hydrated", f"{process.dataflows} dataflows")
