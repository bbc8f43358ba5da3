"""The operator's memory of one Dataflow, in typed values. Each field has one writer.

    value       what it holds                                      writer (below handlers/)
    spec        what the object asks for                           reconcile/dataflow.py
    revisions   the revisions that its status names                revisions/revision_marks.py
    ends        which of them ended, or were superseded            revisions/revision_ends.py
    planning    the planner's answer; what a new revision takes    revisions/plan_revision.py
    obstacles   what stands between the spec and a running revision:
      .planning       reconcile/dataflow.py
      .installing     revisions/installer.py
      .taking_over    revisions/takeover.py
      .suspicions     hydration/

Deletion (deletion/dataflow_deletion.py) writes the last values: `spec.deleting`, and no revisions. All of it can be
rebuilt from the API server: the status names the stored revisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_operator.controller.frontiers.read_policy import KEEP_ALL_MS
from tidemark_operator.controller.hydration.quarantine import Suspicion
from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.revision import ActiveRevision, Parent, RowCount
from tidemark_operator.resources.conditions.dataflow import Plan, Planning, PlanRefused, Stored, WaitingForInputs
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId
from tidemark_protocol.messages.planning import Planned


@dataclass(frozen=True)
class DataflowSpec:
    """The fields of the object, as read last.

    `digest`: of the spec. `deleting`: the object is deleted, and no Dataflow reads it. `as_of`: `spec.asOf`, in
    milliseconds since 1970. `lag_ms`: the read policy of its tables. `release`: the annotation that takes blame back.
    `generation`: the object's; None: none was read.
    """

    digest: str = ""
    suspended: bool = False
    deleting: bool = False
    as_of: int | None = None
    lag_ms: int = KEEP_ALL_MS
    release: str = ""
    generation: int | None = None


@dataclass(frozen=True)
class ReplacementId:
    """A replacement. Its members take over at the moment at which `revision` is marked as the active one of `dataflow`,
    whose edit began the replacement."""

    dataflow: str
    revision: str


@dataclass(frozen=True)
class PendingRevision:
    """A revision that hydrates beside the active one, until it takes over in its `replacement`, or is given up."""

    mark: ActiveRevision
    replacement: ReplacementId


@dataclass(frozen=True)
class RevisionSet:
    """The revisions that the status names, or will name.

    `active`: serves reads. `pending`: is to take over from it. `unmarked`: the active one took over with the edit of
    another Dataflow, and the status does not say so yet. `marking`: the status is being written. `reached`: write
    frontiers by compute id, as the status showed them when this operator began.
    """

    active: ActiveRevision | None = None
    pending: PendingRevision | None = None
    unmarked: bool = False
    marking: bool = False
    reached: Mapping[GlobalId, Frontier] = field(default_factory=dict)


@dataclass(frozen=True)
class RevisionEnds:
    """Revisions whose tables are finished, by name.

    `ended`: the active revision, when the end of its spec has passed and all its tables are finished; else empty.
    `superseded`: revisions whose table another revision has finished.
    """

    ended: str = ""
    superseded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PlannerAnswer:
    """The planner's outcome for the request with the digest `question`.

    `counts`: the row counts of what the plan reads, as the request had them. `again_ms`: when the same request may be
    sent again, where the planner itself failed; `tried`: how often it was sent."""

    question: Digest
    outcome: Planned | PlanRefused | WaitingForInputs
    tried: int = 1
    again_ms: int | None = None
    counts: tuple[RowCount, ...] = ()


@dataclass
class PlanningState:
    """`answer`: the planner's last one. Of a revision that is being stored: `reads`, what it reads; `places`, the
    locations of the tables that it publishes."""

    answer: PlannerAnswer | None = None
    reads: tuple[Parent, ...] = ()
    places: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Obstacle:
    """The reason why a step has not been done yet. `failed`: waiting does not help. `reason`: the condition's, if it
    failed."""

    message: str
    failed: bool = False
    reason: str = ""


@dataclass
class Obstacles:
    """The obstacles between the spec and a revision that serves it.

    `planning`: why no revision of the spec is stored. `installing`: what keeps a revision off its instance, by the
    revision's name. `taking_over`: what a replacement waits for, by the name of the Dataflow's newest revision.
    `suspicions`: blame for deaths of replicas, by the revision's name.
    """

    planning: Planning | WaitingForInputs | PlanRefused | None = None
    installing: dict[str, Obstacle] = field(default_factory=dict)
    taking_over: dict[str, Obstacle] = field(default_factory=dict)
    suspicions: dict[str, Suspicion] = field(default_factory=dict)


@dataclass
class DataflowState:
    """One object; another object of the same name has a state of its own."""

    key: Key
    uid: str
    instance: str
    spec: DataflowSpec = field(default_factory=DataflowSpec)
    revisions: RevisionSet = field(default_factory=RevisionSet)
    ends: RevisionEnds = field(default_factory=RevisionEnds)
    planning: PlanningState = field(default_factory=PlanningState)
    obstacles: Obstacles = field(default_factory=Obstacles)

    @property
    def active(self) -> ActiveRevision | None:
        return self.revisions.active

    @property
    def pending(self) -> PendingRevision | None:
        return self.revisions.pending

    @property
    def marks(self) -> tuple[ActiveRevision, ...]:
        """The active revision, then the pending one."""
        pending = self.pending.mark if self.pending else None
        return tuple(mark for mark in (self.active, pending) if mark is not None)

    @property
    def reads(self) -> tuple[Parent, ...]:
        """The objects that any of its revisions reads."""
        return self.planning.reads + tuple(parent for mark in self.marks for parent in mark.revision.reads)

    @property
    def edited(self) -> bool:
        """Whether the spec differs from the one that the active revision was planned from."""
        return self.active is not None and self.active.spec_digest != self.spec.digest

    @property
    def has_ended(self) -> bool:
        """Whether the active revision is of this spec and ended: no edit of what it reads changes it."""
        return self.active is not None and self.ends.ended == self.active.name and not self.edited

    @property
    def runs(self) -> bool:
        """Whether replicas are to have any of its revisions."""
        return self.active is not None and not self.spec.suspended and not self.spec.deleting

    @property
    def plan(self) -> Plan:
        """The state of planning that the condition Planned shows."""
        refused = self.installing(self.active)
        if refused is not None and refused.failed and (self.pending is None or not self.edited):
            return PlanRefused(refused.reason, refused.message)
        if self.active is None:
            return self.obstacles.planning or Planning()
        if not self.edited:
            return Stored(self.active.name)
        return self.obstacles.planning or Stored(self.marks[-1].name)

    @property
    def preparing(self) -> Obstacle | None:
        """The obstacle that keeps a pending revision from being planned, or else from being installed."""
        match self.obstacles.planning:
            case PlanRefused(message=message):
                return Obstacle(message, failed=True)
            case WaitingForInputs(inputs):
                # a missing input of an edit may come; a replacement that needs a Dataflow without it cannot go on
                return Obstacle(f"waits for {', '.join(inputs)}", failed=not self.edited)
            case Planning(message):
                return Obstacle(message)
        return self.installing(self.pending.mark) if self.pending else None

    @property
    def taking_over(self) -> Obstacle | None:
        """The obstacle that the Dataflow's replacement waits for."""
        return self.obstacles.taking_over.get(self.marks[-1].name) if self.marks else None

    def installing(self, mark: ActiveRevision | None) -> Obstacle | None:
        """The obstacle that keeps one of its revisions off the instance."""
        return self.obstacles.installing.get(mark.name) if mark else None

    def installation(self, mark: ActiveRevision) -> str:
        """The name of one of its revisions on its instance: <namespace>/<name>/<number>."""
        return f"{self.key.path}/{mark.number}"

    @property
    def owner(self) -> str:
        """The name of the active revision on its instance."""
        return self.installation(self.active) if self.active else self.key.path


def name_of(installation: str) -> str:
    """The Dataflow's name; empty for an installation that is not a revision's."""
    _, _, rest = installation.partition("/")
    return rest.partition("/")[0]
