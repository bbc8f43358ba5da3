"""The operator's memory of DataSources and Dataflows: what is stored of them, and how reconciling them stands.

Everything here can be rebuilt from the API server (status names the stored revisions); it is kept because users,
relations and statuses are asked for all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_operator.catalogue.reader_index import Readers
from tidemark_operator.controller.frontiers.read_policy import KEEP_ALL_MS
from tidemark_operator.controller.hydration.quarantine import Suspicion
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.revision import ActiveRevision, Parent
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.conditions.dataflow import Plan, Planning, PlanRefused, WaitingForInputs
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import IngestionDescription


@dataclass
class SourceState:
    """`pinned`: its tables and shards, as stored. `ingester`: as stored in status. `refused`: why none of it is
    read, whatever replicas say."""

    key: Key
    uid: str
    instance: str
    pinned: IngestionDescription | None = None
    ingester: Ingester | None = None
    failure: IngestionFailure | None = None
    refused: IngestionFailure | None = None
    schema_unknown_of: tuple[str, ...] = ()
    report: IngestionStatus | None = None


@dataclass(frozen=True)
class Answer:
    """The planner's outcome for the question of that digest. `again_ms`: when the same question may be asked again,
    for an outcome that is the planner's fault rather than the text's; `tried`: how often it was asked so far."""

    question: Digest
    outcome: Planned | PlanRefused | WaitingForInputs
    tried: int = 1
    again_ms: int | None = None


@dataclass(frozen=True)
class HeldBack:
    """Why a replacement has not taken over yet; `failed`: somebody must do something about it."""

    message: str
    failed: bool = False


@dataclass(frozen=True)
class Together:
    """A replacement: what takes over at one moment, which is when `revision` is marked as active of `dataflow`, whose
    edit began it."""

    dataflow: str
    revision: str


@dataclass(frozen=True)
class PendingRevision:
    """A revision that hydrates beside the active one, until it takes over `together` with others, or is given up."""

    mark: ActiveRevision
    together: Together


@dataclass
class DataflowState:
    """`active`: what serves. `pending`: what is to take over from it. `unmarked`: it took over, and the status does not
    say so yet; `marking`: the status is just being told. `spec_digest`: of the spec as it is now.
    `answer`: what the planner said last. `claims`: what a revision that is just being stored reads. `waiting`,
    `pending_waiting`: what holds back either one's installation; `obstacle`: why there can be no pending one.
    `held_back`: what the replacement that it is part of waits for, and whether in vain. `over`: the revision whose end
    has passed, with all that it exports finished; `outrun`: those whose table another one has finished. `reached`:
    write frontiers by compute id, as an earlier operator wrote them. `suspicions`: of its revisions, by their names;
    `release`: what the annotation says that takes them back."""

    key: Key
    uid: str
    instance: str
    active: ActiveRevision | None = None
    pending: PendingRevision | None = None
    unmarked: bool = False
    marking: bool = False
    spec_digest: str = ""
    plan: Plan = field(default_factory=Planning)
    answer: Answer | None = None
    claims: tuple[Parent, ...] = ()
    waiting: tuple[str, ...] = ()
    pending_waiting: str = ""
    obstacle: str = ""
    held_back: HeldBack | None = None
    over: str = ""
    outrun: frozenset[str] = frozenset()
    suspended: bool = False
    deleting: bool = False
    requested_as_of: int | None = None
    lag_ms: int = KEEP_ALL_MS
    reached: dict[GlobalId, Frontier] = field(default_factory=dict)
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    release: str = ""

    @property
    def reads(self) -> tuple[Parent, ...]:
        return self.claims + tuple(parent for mark in self.marks for parent in mark.revision.reads)

    @property
    def marks(self) -> tuple[ActiveRevision, ...]:
        """Its revisions: what serves, and what is to take over."""
        pending = self.pending.mark if self.pending else None
        return tuple(mark for mark in (self.active, pending) if mark is not None)

    @property
    def edited(self) -> bool:
        """Whether the spec is another than what serves was planned from."""
        return self.active is not None and self.active.spec_digest != self.spec_digest

    @property
    def is_over(self) -> bool:
        """Whether what serves is as the spec says, and for ever: no edit of what it reads concerns it."""
        return self.active is not None and self.over == self.active.name and not self.edited

    @property
    def runs(self) -> bool:
        """Whether replicas are to have anything of it."""
        return self.active is not None and not self.suspended and not self.deleting

    def installation(self, mark: ActiveRevision) -> str:
        """The name of one of its revisions in its instance."""
        return f"{self.key.path}/{mark.number}"

    @property
    def owner(self) -> str:
        """The name of what serves, in its instance."""
        return self.installation(self.active) if self.active else self.key.path


def name_of(installation: str) -> str:
    """The Dataflow's name; of what is no revision, nothing's."""
    _, _, rest = installation.partition("/")
    return rest.partition("/")[0]


class Registry:
    def __init__(self) -> None:
        self._sources: dict[Key, SourceState] = {}
        self._dataflows: dict[Key, DataflowState] = {}
        self._readers = Readers()

    def source(self, key: Key) -> SourceState | None:
        return self._sources.get(key)

    def dataflow(self, key: Key) -> DataflowState | None:
        return self._dataflows.get(key)

    def put_source(self, state: SourceState) -> SourceState:
        self._sources[state.key] = state
        return state

    def put_dataflow(self, state: DataflowState) -> DataflowState:
        self._dataflows[state.key] = state
        self._readers.put(state)
        return state

    def forget(self, key: Key) -> None:
        self._sources.pop(key, None)
        self._dataflows.pop(key, None)
        self._readers.forget(key)

    def known(self) -> list[Key]:
        """Everything that is remembered, whether it is still there or not."""
        return [*self._sources, *self._dataflows]

    def waiting(self) -> list[Key]:
        """What has no tables yet, or no plan that serves."""
        unpinned = [key for key, source in self._sources.items() if source.pinned is None]
        return unpinned + [key for key, dataflow in self._dataflows.items() if dataflow.active is None]

    def sources(self, namespace: str) -> list[SourceState]:
        return [s for s in self._sources.values() if s.key.namespace == namespace]

    def dataflows(self, namespace: str) -> list[DataflowState]:
        return [d for d in self._dataflows.values() if d.key.namespace == namespace]

    def users(self, key: Key) -> list[Key]:
        """Dataflows whose plan reads the object, in order of name."""
        return sorted((reader for reader in self._readers.of(key) if reader != key), key=lambda k: k.name)
