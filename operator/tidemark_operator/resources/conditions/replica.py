"""The truth table of a ComputeReplica: InstanceFound, Online, Ready, UpToDate, and ExecutorsReady where it has some.

Online is the process and its connection; Ready is Online with every dataflow of the instance hydrated here. UpToDate:
the process that serves is in the shape that spec asks for; while it is not, another one hydrates beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, because, no, yes
from tidemark_operator.resources.conditions.instance import IMAGE_TOO_OLD, READY, InstanceFacts, instance_found

ONLINE = "Online"
UP_TO_DATE = "UpToDate"
EXECUTORS_READY = "ExecutorsReady"
TYPES = ("InstanceFound", ONLINE, READY, UP_TO_DATE)


@dataclass(frozen=True, slots=True)
class Starting:
    """The process was started and has not answered yet."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The process answers, and runs the operator's commands."""

    dataflows: int
    hydrated: int
    lacks: str = ""
    """What its image does not know, and which Dataflows it computes nothing of for that."""

    @property
    def count(self) -> str:
        return f"{self.hydrated} of {self.dataflows} dataflows are hydrated"


@dataclass(frozen=True, slots=True)
class Down:
    """There is no process that answers. `reason` is CamelCase: Crashed, Killed, NotConnected ..."""

    reason: str
    message: str


Process = Starting | Answering | Down


@dataclass(frozen=True, slots=True)
class ExecutorFacts:
    """`reason`, `message`: what is wrong with one that does not run, if anything is; `lost`: how one ended lately."""

    wanted: int
    running: int
    reason: str = ""
    message: str = ""
    lost: str = ""

    @property
    def count(self) -> str:
        return f"{self.running} of {self.wanted} executors run"


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """`process` is the one that serves; `beside`: the one that is to take its place."""

    instance: InstanceFacts
    suspended: bool
    process: Process
    beside: Process | None = None
    executors: ExecutorFacts | None = None
    left: bool = False
    """Whether there is anything of its processes: one that was told to end may write until it has ended."""


def replica_conditions(facts: ReplicaFacts) -> list[Verdict]:
    """The conditions of a ComputeReplica, in the order of `TYPES`."""
    online = _online(facts)
    found = [instance_found(facts.instance), online, _ready(facts.process, online), _up_to_date(facts, online)]
    return found if facts.executors is None else [*found, _executors(facts.executors, facts.process, online)]


def _up_to_date(facts: ReplicaFacts, online: Verdict) -> Verdict:
    """What keeps one from taking the place of the other is said here, and is no trouble of the one that serves."""
    match facts.beside:
        case None:
            return yes(UP_TO_DATE, "UpToDate") if online.holds else because(UP_TO_DATE, online)
        case Starting():
            return no(
                UP_TO_DATE, "Surging", "a process in the new shape starts; the old one serves until it has hydrated"
            )
        case Answering():
            says = f"{facts.beside.count} in the new shape; the old one serves until all are"
            return no(UP_TO_DATE, "Surging", f"{says}; {facts.beside.lacks}" if facts.beside.lacks else says)
        case Down(reason, message):
            return no(
                UP_TO_DATE,
                f"Surge{reason}",
                f"the old shape goes on serving, since the new one does not run beside it: {message}. Make room, take "
                "the edit back, or set spec.updateStrategy: Recreate, which ends the old one first",
            )


def _executors(facts: ExecutorFacts, process: Process, online: Verdict) -> Verdict:
    count = facts.count
    if facts.running >= facts.wanted:
        return yes(EXECUTORS_READY, "ExecutorsRunning", f"{count}; lately {facts.lost}" if facts.lost else count)
    if facts.reason and isinstance(process, Answering | Down):  # it may be why the process is down
        return no(EXECUTORS_READY, facts.reason, f"{count}: {facts.message}")
    if not online.holds:
        return because(EXECUTORS_READY, online)
    return no(EXECUTORS_READY, "Starting", f"{count}; Spark starts them, and counts those that have registered")


def _online(facts: ReplicaFacts) -> Verdict:
    if not facts.instance.found:
        return no(ONLINE, "InstanceNotFound", f"there is no ComputeInstance {facts.instance.name}")
    if facts.instance.suspended:  # before its own suspension: `kubectl wait` finds one reason on all replicas
        return _stopped(facts, "InstanceSuspended", f"ComputeInstance {facts.instance.name} is suspended")
    if facts.suspended:
        return _stopped(facts, "Suspended", "spec.suspend stops this replica")
    match facts.process:
        case Starting():
            return no(ONLINE, "Starting", "the process was started and has not answered yet")
        case Down(reason, message):
            return no(ONLINE, reason, message)
        case Answering():
            return yes(ONLINE, "Online")


def _stopped(facts: ReplicaFacts, reason: str, message: str) -> Verdict:
    """The reason is there once nothing of it runs: whoever copies its tables waits for that."""
    if not facts.left:
        return no(ONLINE, reason, message)
    says = f": {facts.process.message}" if isinstance(facts.process, Down) else ""
    return no(ONLINE, "Stopping", f"{message}, and its process has not ended yet{says}")


def _ready(process: Process, online: Verdict) -> Verdict:
    if not online.holds or not isinstance(process, Answering):
        return because(READY, online)
    if process.lacks:
        return no(READY, IMAGE_TOO_OLD, f"{process.count}; {process.lacks}")
    if process.hydrated < process.dataflows:
        return no(READY, "Hydrating", process.count)
    return yes(READY, "Hydrated", f"{process.dataflows} dataflows")
