"""The truth table of a Dataflow: InstanceFound, Planned, Scheduled, Hydrated, Erroring, Ready, Progressing.

    InstanceFound ──> Planned ──> Scheduled ──> Hydrated ──> Ready          each needs the one before it;
                                                   └──────> Erroring ──┘    the first that fails gives the reason

Ready answers: do reads of *this* generation of the spec return results? It is False while an edit cannot be planned,
while an edit hydrates beside the revision that still serves (the message names it), and while the results are errors.
Progressing answers: will anything change without an action of the user?

After an edit, Scheduled, Hydrated and Erroring describe the edit. A Dataflow that is replaced because one of its inputs
was edited serves its own spec meanwhile: only Progressing reports the replacement.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, because, no, unknown, yes
from tidemark_operator.resources.conditions.instance import (
    IMAGE_TOO_OLD,
    READY,
    InstanceFacts,
    instance_found,
    runs_nothing,
)

PLANNED, SCHEDULED, HYDRATED = "Planned", "Scheduled", "Hydrated"
HYDRATING = "Hydrating"
"""The reason whose message changes often: it holds a percentage."""
ERRORING, PROGRESSING = "Erroring", "Progressing"
QUARANTINED, INPUT_QUARANTINED = "Quarantined", "InputQuarantined"
TYPES = ("InstanceFound", PLANNED, SCHEDULED, HYDRATED, ERRORING, READY, PROGRESSING)


@dataclass(frozen=True, slots=True)
class Planning:
    """No plan yet: the planner works on it, is busy or unreachable, or the plan waits to be stored. `message` says
    which."""

    message: str = "waiting for the planner"


@dataclass(frozen=True, slots=True)
class WaitingForInputs:
    """The SQL names inputs that do not exist or have no schema yet, such as `DataSource tpch`."""

    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """The planner refused the SQL. `reason` is CamelCase; `message` has line, column and the offending word."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A revision of this generation of the spec is stored; the replicas should run it."""

    revision: str


Plan = Planning | WaitingForInputs | PlanRefused | Stored


@dataclass(frozen=True, slots=True)
class Replacement:
    """A revision that will replace the serving one. `own`: this spec was edited; else an input was. `waits`: what it
    waits for. `failed`: it cannot succeed without an edit."""

    own: bool
    waits: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class DataflowFacts:
    """The input of the truth table."""

    instance: InstanceFacts
    plan: Plan
    suspended: bool = False
    serving: str | None = None
    """The revision that serves reads, of this generation or of an earlier one."""
    deleting_used_by: tuple[str, ...] = ()
    """Dataflows that still read the exports, if the Dataflow is being deleted."""
    waiting_for_inputs: tuple[str, ...] = ()
    """Inputs whose upper has not passed the as_of: nothing can be computed before."""
    scheduled: bool = False
    exports: int = 0
    exports_hydrated: int = 0
    hydration: str = ""
    """Progress of the replica that has hydrated most, as text."""
    too_old: str = ""
    """The features that the replicas' images lack, if no connected replica can compute the Dataflow."""
    finished: bool = False
    """No export will change any more."""
    exports_in_error: tuple[str, ...] = ()
    """Exports that hold errors, each as `name: code`."""
    errors_recorded: bool = False
    """The errors are those of a finished Dataflow, known from its status: no replica computes it any more."""
    quarantined: str = ""
    """The replicas that died while it hydrated, if they are so many that it is quarantined."""
    quarantined_input: str = ""
    """The quarantined Dataflow whose index it needs, if no replica has that index."""
    replacement: Replacement | None = None
    """With `own`, the fields from `scheduled` on describe the new revision."""


def dataflow_conditions(facts: DataflowFacts) -> list[Verdict]:
    """The conditions of a Dataflow, in the order of `TYPES`."""
    found, planned = instance_found(facts.instance), _planned(facts)
    scheduled = _scheduled(facts, planned)
    hydrated = _hydrated(facts, scheduled)
    erroring = _erroring(facts, hydrated)
    ready = _ready(facts, found, planned, scheduled, hydrated)
    return [found, planned, scheduled, hydrated, erroring, ready, _progressing(facts, planned, ready)]


def _planned(facts: DataflowFacts) -> Verdict:
    match facts.plan:
        case _ if not facts.instance.found:
            return unknown(
                PLANNED,
                "InstanceNotFound",
                f"ComputeInstance {facts.instance.name} does not exist: create it, or correct spec.instance",
            )
        case Planning(message):
            return unknown(PLANNED, "Planning", message)
        case WaitingForInputs(inputs):
            return no(
                PLANNED,
                "WaitingForInputs",
                f"waiting for {', '.join(inputs)}: apply it, or correct the name in the SQL",
            )
        case PlanRefused(reason, message):
            return no(PLANNED, reason, message)
        case Stored():
            return yes(PLANNED, "Planned")


def _scheduled(facts: DataflowFacts, planned: Verdict) -> Verdict:
    if facts.suspended:
        return no(
            SCHEDULED,
            "Suspended",
            "spec.suspend removes this Dataflow from the replicas. Set spec.suspend: false to resume",
        )
    if not planned.holds:
        return because(SCHEDULED, planned)
    if (idle := runs_nothing(SCHEDULED, facts.instance)) is not None:
        return idle
    if facts.quarantined and facts.exports_hydrated < facts.exports:
        return no(SCHEDULED, QUARANTINED, facts.quarantined)
    if facts.quarantined_input and facts.exports_hydrated < facts.exports:
        return no(SCHEDULED, INPUT_QUARANTINED, facts.quarantined_input)
    if facts.waiting_for_inputs:
        return no(
            SCHEDULED,
            "WaitingForInputs",
            f"waiting until the frontiers of these inputs pass the as_of: {', '.join(facts.waiting_for_inputs)}",
        )
    if not facts.scheduled:
        return no(
            SCHEDULED,
            "Queued",
            "waiting until other Dataflows have hydrated (spec.hydrationConcurrency of the ComputeInstance)",
        )
    return yes(SCHEDULED, "Scheduled")


def _hydrated(facts: DataflowFacts, scheduled: Verdict) -> Verdict:
    if not scheduled.holds:
        return because(HYDRATED, scheduled)
    if facts.too_old and facts.exports_hydrated < facts.exports:
        return no(HYDRATED, IMAGE_TOO_OLD, facts.too_old)
    if facts.exports_hydrated < facts.exports:
        counted = f"{facts.exports_hydrated} of {facts.exports} exports are hydrated"
        return no(HYDRATED, HYDRATING, f"{facts.hydration}; {counted}" if facts.hydration else counted)
    return yes(HYDRATED, "Hydrated")


def _erroring(facts: DataflowFacts, hydrated: Verdict) -> Verdict:
    if not hydrated.holds and not facts.errors_recorded:
        return unknown(ERRORING, hydrated.reason, hydrated.message)
    if facts.exports_in_error:
        return yes(ERRORING, "ErrorRows", "; ".join(facts.exports_in_error))
    return no(ERRORING, "NoErrors")


def _ready(facts: DataflowFacts, *needed: Verdict) -> Verdict:
    for verdict in needed:
        if not verdict.holds:
            return _still_serving(because(READY, verdict), facts)
    if facts.replacement is not None and facts.replacement.own:
        return _still_serving(no(READY, "Replacing", facts.replacement.waits), facts)
    if facts.exports_in_error:
        return no(READY, "ErrorRows", "; ".join(facts.exports_in_error))
    return yes(READY, "Finished" if facts.finished else "Ready")


def _still_serving(ready: Verdict, facts: DataflowFacts) -> Verdict:
    """Append the revision that serves, if it is of an earlier generation."""
    if facts.serving is None or (isinstance(facts.plan, Stored) and facts.plan.revision == facts.serving):
        return ready
    return no(READY, ready.reason, f"{ready.message}; revision {facts.serving} still serves")


def _progressing(facts: DataflowFacts, planned: Verdict, ready: Verdict) -> Verdict:
    if facts.deleting_used_by:
        return no(
            PROGRESSING,
            "InUse",
            f"being deleted; waiting until {', '.join(facts.deleting_used_by)} are deleted, or no longer read it",
        )
    if isinstance(facts.plan, PlanRefused):
        return because(PROGRESSING, planned)
    if facts.replacement is not None and facts.replacement.failed:
        return no(PROGRESSING, "ReplacementFailed", facts.replacement.waits)
    if facts.suspended or facts.instance.suspended:
        return no(
            PROGRESSING,
            "Suspended",
            "suspended: set spec.suspend: false on the Dataflow or its ComputeInstance to resume",
        )
    if facts.replacement is not None and (ready.holds or facts.replacement.own):
        return yes(PROGRESSING, "Replacing", facts.replacement.waits)
    if ready.reason in (QUARANTINED, INPUT_QUARANTINED, IMAGE_TOO_OLD):
        return because(PROGRESSING, ready)
    if ready.holds and facts.finished:
        return no(PROGRESSING, "Finished", "the results are complete for all times and will not change")
    if ready.holds or ready.reason == "ErrorRows":
        return no(PROGRESSING, "UpToDate", "the revision of this spec serves reads")
    return yes(PROGRESSING, ready.reason, ready.message)
