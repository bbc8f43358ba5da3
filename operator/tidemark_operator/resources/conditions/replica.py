"""The truth table of a ComputeReplica: InstanceFound, Online, Ready, UpToDate, and ExecutorsReady if it has executors.

Online: the process answers. Ready: it is online, and every Dataflow of the instance is hydrated on it. UpToDate: the
serving process has the shape of the spec; while it has not, a successor hydrates beside it.
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
    """The process is started and has not answered yet."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The process answers. `dataflows`, `hydrated`: numbers of Dataflows assigned to it, and hydrated on it."""

    dataflows: int
    hydrated: int
    missing_features: str = ""
    """The features that its image lacks, and the Dataflows that it does not compute for that reason."""

    @property
    def count(self) -> str:
        return f"{self.hydrated} of {self.dataflows} dataflows are hydrated"


@dataclass(frozen=True, slots=True)
class Down:
    """No process answers. `reason` is CamelCase: Crashed, Killed, NotConnected ..."""

    reason: str
    message: str


Process = Starting | Answering | Down


@dataclass(frozen=True, slots=True)
class ExecutorFacts:
    """The executors of a replica. `reason`, `message`: why one of them does not run, if known."""

    wanted: int
    running: int
    reason: str = ""
    message: str = ""

    @property
    def count(self) -> str:
        return f"{self.running} of {self.wanted} executors run"


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The input of the truth table. `process`: the one that serves. `successor`: the one that hydrates beside it."""

    instance: InstanceFacts
    suspended: bool
    process: Process
    successor: Process | None = None
    executors: ExecutorFacts | None = None
    process_exists: bool = False
    """Whether any of its processes may still exist. A process that is stopping may write until it has ended."""


def replica_conditions(facts: ReplicaFacts) -> list[Verdict]:
    """The conditions of a ComputeReplica, in the order of `TYPES`."""
    online = _online(facts)
    found = [instance_found(facts.instance), online, _ready(facts.process, online), _up_to_date(facts, online)]
    return found if facts.executors is None else [*found, _executors(facts.executors, facts.process, online)]


def _up_to_date(facts: ReplicaFacts, online: Verdict) -> Verdict:
    """The condition UpToDate. It reports the problems of the successor, which do not affect the serving process."""
    match facts.successor:
        case None:
            return yes(UP_TO_DATE, "UpToDate") if online.holds else because(UP_TO_DATE, online)
        case Starting():
            return no(
                UP_TO_DATE,
                "Surging",
                "a process in the new shape is starting; the old one serves until the new one has hydrated",
            )
        case Answering():
            message = f"{facts.successor.count} in the new shape; the old one serves until all are"
            return no(
                UP_TO_DATE,
                "Surging",
                f"{message}; {facts.successor.missing_features}" if facts.successor.missing_features else message,
            )
        case Down(reason, message):
            return no(
                UP_TO_DATE,
                f"Surge{reason}",
                f"the old shape goes on serving, because the new one does not run beside it: {message}. Add capacity, "
                "revert the edit, or set spec.updateStrategy: Recreate, which ends the old process first",
            )


def _executors(facts: ExecutorFacts, process: Process, online: Verdict) -> Verdict:
    count = facts.count
    if facts.running >= facts.wanted:
        return yes(EXECUTORS_READY, "ExecutorsRunning", count)
    if facts.reason and isinstance(
        process, Answering | Down
    ):  # the executors may be the reason why the process is down
        return no(EXECUTORS_READY, facts.reason, f"{count}: {facts.message}")
    if not online.holds:
        return because(EXECUTORS_READY, online)
    return no(EXECUTORS_READY, "Starting", f"{count}; waiting until all executors have registered with the driver")


def _online(facts: ReplicaFacts) -> Verdict:
    if not facts.instance.found:
        return no(
            ONLINE,
            "InstanceNotFound",
            f"ComputeInstance {facts.instance.name} does not exist: create it, or correct spec.instance",
        )
    if (
        facts.instance.suspended
    ):  # checked before spec.suspend, so that all replicas of the instance have the same reason for `kubectl wait`
        return _stopping_verdict(
            facts,
            "InstanceSuspended",
            f"ComputeInstance {facts.instance.name} is suspended: set its spec.suspend: false",
        )
    if facts.suspended:
        return _stopping_verdict(
            facts, "Suspended", "spec.suspend stops this replica. Set spec.suspend: false to resume"
        )
    match facts.process:
        case Starting():
            return no(ONLINE, "Starting", "the process is started and has not answered yet")
        case Down(reason, message):
            return no(ONLINE, reason, message)
        case Answering():
            return yes(ONLINE, "Online")


def _stopping_verdict(facts: ReplicaFacts, reason: str, message: str) -> Verdict:
    """Stopping, until all its processes have ended; then `reason`. A user who copies its tables waits for that
    reason."""
    if not facts.process_exists:
        return no(ONLINE, reason, message)
    detail = f": {facts.process.message}" if isinstance(facts.process, Down) else ""
    return no(ONLINE, "Stopping", f"{message}; its process has not ended yet and may still write{detail}")


def _ready(process: Process, online: Verdict) -> Verdict:
    if not online.holds or not isinstance(process, Answering):
        return because(READY, online)
    if process.missing_features:
        return no(READY, IMAGE_TOO_OLD, f"{process.count}; {process.missing_features}")
    if process.hydrated < process.dataflows:
        return no(READY, "Hydrating", process.count)
    return yes(READY, "Hydrated", f"all {process.dataflows} dataflows are hydrated")
