"""The truth table of a Dataflow: InstanceFound, Planned, Scheduled, Hydrated, Erroring, Ready, Progressing.

    InstanceFound ──> Planned ──> Scheduled ──> Hydrated ──> Ready          each needs the one before it;
                                                   └──────> Erroring ──┘    the first that fails gives the reason

Ready answers one question: do reads of *this* generation of the spec give results? So it is False while an edit does
not plan, or hydrates beside the revision that still serves (the message says so), and while the results are errors.
Progressing answers another: is there anything that will change by waiting?

Of an edited Dataflow, Scheduled, Hydrated and Erroring speak of the edit. One that is replaced because what it imports
is edited serves its own spec all the while: only Progressing tells of that.
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
"""The reason whose message moves all the time."""
ERRORING, PROGRESSING = "Erroring", "Progressing"
QUARANTINED, INPUT_QUARANTINED = "Quarantined", "InputQuarantined"
TYPES = ("InstanceFound", PLANNED, SCHEDULED, HYDRATED, ERRORING, READY, PROGRESSING)


@dataclass(frozen=True, slots=True)
class Planning:
    """The planner is asked, at others, or cannot be reached, or its plan waits to be stored; `message` tells which."""

    message: str = "waiting for the planner"


@dataclass(frozen=True, slots=True)
class WaitingForInputs:
    """The SQL names what is not there (yet), such as `DataSource tpch`, or what has no schema yet."""

    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """The planner's answer, for good: `reason` is CamelCase, `message` has line, column and the offending word."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A revision of this generation of the spec is stored, and is what the replicas are to run."""

    revision: str


Plan = Planning | WaitingForInputs | PlanRefused | Stored


@dataclass(frozen=True, slots=True)
class Replacement:
    """A revision is to take over from the one that serves. `own`: because this spec was edited; else because what it
    imports was. `waits`: what for; `failed`: waiting will not help."""

    own: bool
    waits: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class DataflowFacts:
    instance: InstanceFacts
    plan: Plan
    suspended: bool = False
    serving: str | None = None
    """The revision that replicas run, be it of this generation or of one before."""
    deleting_used_by: tuple[str, ...] = ()
    """Dataflows that read the exports of a Dataflow which is to be deleted."""
    waiting_for_inputs: tuple[str, ...] = ()
    """Inputs whose frontier has not passed the as_of: until then nothing can be computed."""
    scheduled: bool = False
    exports: int = 0
    exports_hydrated: int = 0
    hydration: str = ""
    """How far the furthest hydration is, in words."""
    too_old: str = ""
    """What the images of replicas do not know of it, where none that answers can compute it."""
    finished: bool = False
    """No export will change any more."""
    exports_in_error: tuple[str, ...] = ()
    """Exports that hold errors: `name: code` for each."""
    remembered: bool = False
    """That they do was told before, and is so for ever: nobody computes what is finished."""
    quarantined: str = ""
    """Which replicas died while it was hydrating, if so many did that it is not scheduled any more."""
    resting: str = ""
    """Which Dataflow that is quarantined it needs an index of, if no replica has that."""
    replacement: Replacement | None = None
    """Where it is the spec that was edited, `scheduled` and what follows it above are the new revision's."""


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
            return unknown(PLANNED, "InstanceNotFound", f"there is no ComputeInstance {facts.instance.name}")
        case Planning(message):
            return unknown(PLANNED, "Planning", message)
        case WaitingForInputs(inputs):
            return no(PLANNED, "WaitingForInputs", f"waits for {', '.join(inputs)}")
        case PlanRefused(reason, message):
            return no(PLANNED, reason, message)
        case Stored():
            return yes(PLANNED, "Planned")


def _scheduled(facts: DataflowFacts, planned: Verdict) -> Verdict:
    if facts.suspended:
        return no(SCHEDULED, "Suspended", "spec.suspend takes this dataflow off the replicas")
    if not planned.holds:
        return because(SCHEDULED, planned)
    if (idle := runs_nothing(SCHEDULED, facts.instance)) is not None:
        return idle
    if facts.quarantined and facts.exports_hydrated < facts.exports:
        return no(SCHEDULED, QUARANTINED, facts.quarantined)
    if facts.resting and facts.exports_hydrated < facts.exports:
        return no(SCHEDULED, INPUT_QUARANTINED, facts.resting)
    if facts.waiting_for_inputs:
        return no(
            SCHEDULED,
            "WaitingForInputs",
            f"until their frontiers pass the as_of, nothing can be computed: {', '.join(facts.waiting_for_inputs)}",
        )
    if not facts.scheduled:
        return no(SCHEDULED, "Queued", "waits for its turn to hydrate")
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
    if not hydrated.holds and not facts.remembered:
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
    """Say that an earlier revision serves, where this generation does not."""
    if facts.serving is None or (isinstance(facts.plan, Stored) and facts.plan.revision == facts.serving):
        return ready
    return no(READY, ready.reason, f"{ready.message}; revision {facts.serving} still serves")


def _progressing(facts: DataflowFacts, planned: Verdict, ready: Verdict) -> Verdict:
    if facts.deleting_used_by:
        return no(PROGRESSING, "InUse", f"to be deleted; waits for {', '.join(facts.deleting_used_by)}")
    if isinstance(facts.plan, PlanRefused):
        return because(PROGRESSING, planned)
    if facts.replacement is not None and facts.replacement.failed:
        return no(PROGRESSING, "ReplacementFailed", facts.replacement.waits)
    if facts.suspended or facts.instance.suspended:
        return no(PROGRESSING, "Suspended", "nothing changes before suspend is false")
    if facts.replacement is not None and (ready.holds or facts.replacement.own):
        return yes(PROGRESSING, "Replacing", facts.replacement.waits)
    if ready.reason in (QUARANTINED, INPUT_QUARANTINED, IMAGE_TOO_OLD):
        return because(PROGRESSING, ready)
    if ready.holds and facts.finished:
        return no(PROGRESSING, "Finished", "its results are complete for all times")
    if ready.holds or ready.reason == "ErrorRows":
        return no(PROGRESSING, "UpToDate", "the revision of this spec serves")
    return yes(PROGRESSING, ready.reason, ready.message)
