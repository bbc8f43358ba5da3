"""The truth table of a Dataflow: InstanceFound, Planned, Scheduled, Hydrated, Erroring, Ready, Progressing; Published
where a view is published as an ordinary table, and Delivered where it has destinations outside.

    InstanceFound ──> Planned ──> Scheduled ──> Hydrated ──> Ready          each needs the one before it;
                                                   └──────> Erroring ──┘    the first that fails gives the reason

Ready answers: do reads return results? It speaks of the revision that serves. While an edit is prepared, that is the
revision of the earlier spec, and Planned, Scheduled, Hydrated, Erroring and Progressing describe the edit. Progressing
answers: is the revision of this spec coming without an action of the user? It is False with the reason UpToDate once
that revision serves.

A message stands in one condition: those after it in the chain name that condition. A Dataflow that is replaced because
one of its inputs was edited serves its own spec meanwhile: only Progressing reports the replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, no, unknown, yes
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
ERRORING, PROGRESSING, PUBLISHED, DELIVERED = "Erroring", "Progressing", "Published", "Delivered"
QUARANTINED, INPUT_QUARANTINED = "Quarantined", "InputQuarantined"
_SEE = "see condition "
_SUSPENDED = "spec.suspend removes this Dataflow from the replicas. Set spec.suspend: false to resume"
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
class ReplacementFacts:
    """A revision that will replace the serving one. `own`: this spec was edited; else an input was. `waits`: what it
    waits for. `failed`: it cannot succeed without an edit."""

    own: bool
    waits: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class EarlierRevision:
    """The revision that serves while an edit is prepared. `hydrated`: some replica has all of its exports."""

    name: str
    hydrated: bool
    exports_in_error: tuple[str, ...] = ()
    finished: bool = False


@dataclass(frozen=True, slots=True)
class DestinationFacts:
    """A destination of a view of the serving revision. `kind`: `published` of the ordinary table, or that of a sink.
    `exists`: it has had the rows of some time. `problem`: why the last attempt failed. `reason`: that of the condition
    where the problem has one."""

    export: str
    kind: str
    exists: bool
    problem: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DataflowFacts:
    """The input of the truth table."""

    instance: InstanceFacts
    plan: Plan
    suspended: bool = False
    earlier: EarlierRevision | None = None
    """The revision that serves reads, if it is of an earlier spec."""
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
    """Exports that hold errors, or fail on a replica, each as `name: code` or `name: failure`."""
    errors_recorded: bool = False
    """The errors are those of a finished Dataflow, known from its status: no replica computes it any more."""
    quarantined: str = ""
    """The replicas that died while it hydrated, if they are so many that it is quarantined."""
    quarantined_input: str = ""
    """The quarantined Dataflow whose index it needs, if no replica has that index."""
    tables_changed: tuple[str, ...] = ()
    """Changes of other programs to tables, for which the dataflow was computed again."""
    publications: tuple[DestinationFacts, ...] = ()
    replacement: ReplacementFacts | None = None
    """The replacement; with `own`, the fields from `scheduled` on describe the new revision."""


def dataflow_conditions(facts: DataflowFacts) -> list[Verdict]:
    """The conditions of a Dataflow, in the order of `TYPES`; then Published and Delivered, where a view has such
    destinations."""
    found, planned = instance_found(facts.instance), _planned(facts)
    scheduled = _scheduled(facts, planned)
    hydrated = _hydrated(facts, scheduled)
    erroring = _erroring(facts, hydrated)
    failed = next((verdict for verdict in (found, planned, scheduled, hydrated) if not verdict.holds), None)
    ready = _ready(facts, failed) if facts.earlier is None else _earlier_ready(facts, facts.earlier, found)
    progressing = _progressing(facts, planned, failed, ready)
    tables = [each for each in facts.publications if each.kind == "published"]
    outside = [each for each in facts.publications if each.kind != "published"]
    published = [_published(tables)] if tables else []
    delivered = [_delivered(outside)] if outside else []
    return [found, planned, scheduled, hydrated, erroring, ready, progressing, *published, *delivered]


def _published(publications: Sequence[DestinationFacts]) -> Verdict:
    """The verdict on the tables that readers outside find: whether each is there, and follows its view."""
    if failed := [each for each in publications if each.problem]:
        reason = next((each.reason for each in failed if each.reason), "PublicationFailed")
        return no(PUBLISHED, reason, "; ".join(f"{each.export}: {each.problem}" for each in failed))
    if missing := [each.export for each in publications if not each.exists]:
        return no(PUBLISHED, "NotPublishedYet", f"no table yet of {', '.join(missing)}: the view is computed first")
    return yes(PUBLISHED, "Published")


def _delivered(publications: Sequence[DestinationFacts]) -> Verdict:
    """The verdict on the destinations outside of Tidemark: whether each has its view's rows, and follows it."""
    if failed := [each for each in publications if each.problem]:
        reason = next((each.reason for each in failed if each.reason), "DeliveryFailed")
        return no(DELIVERED, reason, "; ".join(f"{each.kind} of {each.export}: {each.problem}" for each in failed))
    if missing := [f"{each.kind} of {each.export}" for each in publications if not each.exists]:
        return no(DELIVERED, "NotDeliveredYet", f"no rows yet in {', '.join(missing)}: the view is computed first")
    return yes(DELIVERED, "Delivered")


def _see(cause: Verdict) -> str:
    """The name of the condition whose message tells about `cause`."""
    return cause.message if cause.message.startswith(_SEE) else f"{_SEE}{cause.type}"


def _because(type: str, cause: Verdict) -> Verdict:
    """`type` is False for the reason of `cause`, the first condition of the chain that fails."""
    return no(type, cause.reason, _see(cause))


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
        return no(SCHEDULED, "Suspended", _SUSPENDED)
    if not planned.holds:
        return _because(SCHEDULED, planned)
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
        return _because(HYDRATED, scheduled)
    if facts.too_old and facts.exports_hydrated < facts.exports:
        return no(HYDRATED, IMAGE_TOO_OLD, facts.too_old)
    if facts.exports_hydrated < facts.exports:
        counted = f"{facts.exports_hydrated} of {facts.exports} exports are hydrated"
        hydration = (facts.hydration,) if facts.hydration else ()
        return no(HYDRATED, HYDRATING, "; ".join((*facts.exports_in_error, *hydration, counted)))
    return yes(HYDRATED, "Hydrated")


def _erroring(facts: DataflowFacts, hydrated: Verdict) -> Verdict:
    if not hydrated.holds and not facts.errors_recorded:
        return unknown(ERRORING, hydrated.reason, _see(hydrated))
    if facts.exports_in_error:
        return yes(ERRORING, "ErrorRows", "; ".join(facts.exports_in_error))
    return no(ERRORING, "NoErrors", "; ".join(facts.tables_changed))


def _ready(facts: DataflowFacts, failed: Verdict | None) -> Verdict:
    """`failed`: the first condition of the chain that fails."""
    if failed is not None:
        return _because(READY, failed)
    if facts.replacement is not None and facts.replacement.own:
        return no(READY, "Replacing", facts.replacement.waits)
    if facts.exports_in_error:
        return no(READY, "ErrorRows", f"{_SEE}{ERRORING}")
    message = serves(facts.plan.revision) if isinstance(facts.plan, Stored) else ""
    return yes(READY, "Finished" if facts.finished else "Ready", message)


def serves(revision: str) -> str:
    """The message of Ready while a revision of the present spec serves."""
    return f"revision {revision} serves reads"


def _earlier_ready(facts: DataflowFacts, earlier: EarlierRevision, found: Verdict) -> Verdict:
    """Ready, while the revision of an earlier spec serves."""
    if not found.holds:
        return _because(READY, found)
    if facts.suspended:
        return no(READY, "Suspended", _SUSPENDED)
    if (idle := runs_nothing(READY, facts.instance)) is not None:
        return idle
    if not earlier.hydrated:
        return no(READY, HYDRATING, f"revision {earlier.name}, of the spec before the edit, is being computed again")
    if earlier.exports_in_error:
        return no(READY, "ErrorRows", f"revision {earlier.name} serves: {'; '.join(earlier.exports_in_error)}")
    message = f"revision {earlier.name}, of the spec before the edit, serves; {PROGRESSING} tells about the edit"
    return yes(READY, "Finished" if earlier.finished else "Ready", message)


def _progressing(facts: DataflowFacts, planned: Verdict, failed: Verdict | None, ready: Verdict) -> Verdict:
    if facts.deleting_used_by:
        return no(
            PROGRESSING,
            "InUse",
            f"being deleted; waiting until {', '.join(facts.deleting_used_by)} are deleted, or no longer read it",
        )
    if isinstance(facts.plan, PlanRefused):
        return _because(PROGRESSING, planned)
    if facts.replacement is not None and facts.replacement.failed:
        return no(PROGRESSING, "ReplacementFailed", facts.replacement.waits)
    if facts.suspended or facts.instance.suspended:
        return no(
            PROGRESSING,
            "Suspended",
            "suspended: set spec.suspend: false on the Dataflow or its ComputeInstance to resume",
        )
    if failed is not None and failed.reason in (QUARANTINED, INPUT_QUARANTINED, IMAGE_TOO_OLD):
        return _because(PROGRESSING, failed)
    if facts.replacement is not None and (ready.holds or facts.replacement.own):
        return yes(PROGRESSING, "Replacing", facts.replacement.waits)
    if ready.holds and facts.finished:
        return no(PROGRESSING, "Finished", "the results are complete for all times and will not change")
    if ready.holds or ready.reason == "ErrorRows":
        return no(PROGRESSING, "UpToDate", "the revision of this spec serves reads")
    return yes(PROGRESSING, ready.reason, _see(ready) if failed is None else _see(failed))
