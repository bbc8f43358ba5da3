"""The operator's memory of DataSources and Dataflows: what is stored of them, and how reconciling them stands.

Everything here can be rebuilt from the API server (status names the stored revisions); it is kept because users,
relations and statuses are asked for all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_operator.controller.ingestion import Ingester
from tidemark_operator.kube.cache import Key
from tidemark_operator.planning.revision import ActiveRevision, Parent
from tidemark_operator.resources.data_source_conditions import IngestionFailure
from tidemark_operator.resources.dataflow_conditions import Plan, Planning, PlanRefused, WaitingForInputs
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId
from tidemark_protocol.planning import Planned
from tidemark_protocol.responses import IngestionStatus
from tidemark_protocol.storage import IngestionDescription


@dataclass
class SourceState:
    """`pinned`: its tables and shards, as stored. `ingester`: as stored in status."""

    key: Key
    uid: str
    instance: str
    pinned: IngestionDescription | None = None
    ingester: Ingester | None = None
    failure: IngestionFailure | None = None
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


@dataclass
class DataflowState:
    """`active`: what replicas are to run. `answer`: what the planner said last. `claims`: what a revision that is just
    being stored reads. `reached`: write frontiers by
    compute id, as an earlier operator wrote them."""

    key: Key
    uid: str
    instance: str
    active: ActiveRevision | None = None
    plan: Plan = field(default_factory=Planning)
    answer: Answer | None = None
    claims: tuple[Parent, ...] = ()
    waiting: tuple[str, ...] = ()
    suspended: bool = False
    deleting: bool = False
    requested_as_of: int | None = None
    lag_ms: int = 0
    reached: dict[GlobalId, Frontier] = field(default_factory=dict)

    @property
    def reads(self) -> tuple[Parent, ...]:
        return self.claims + (self.active.revision.reads if self.active else ())

    @property
    def owner(self) -> str:
        """Its name in its instance."""
        return self.key.path


class Registry:
    def __init__(self) -> None:
        self._sources: dict[Key, SourceState] = {}
        self._dataflows: dict[Key, DataflowState] = {}

    def source(self, key: Key) -> SourceState | None:
        return self._sources.get(key)

    def dataflow(self, key: Key) -> DataflowState | None:
        return self._dataflows.get(key)

    def put_source(self, state: SourceState) -> SourceState:
        self._sources[state.key] = state
        return state

    def put_dataflow(self, state: DataflowState) -> DataflowState:
        self._dataflows[state.key] = state
        return state

    def forget(self, key: Key) -> None:
        self._sources.pop(key, None)
        self._dataflows.pop(key, None)

    def known(self) -> list[Key]:
        """Everything that is remembered, whether it is still there or not."""
        return [*self._sources, *self._dataflows]

    def sources(self, namespace: str) -> list[SourceState]:
        return [s for s in self._sources.values() if s.key.namespace == namespace]

    def dataflows(self, namespace: str) -> list[DataflowState]:
        return [d for d in self._dataflows.values() if d.key.namespace == namespace]

    def users(self, key: Key) -> list[Key]:
        """Dataflows whose plan reads the object, in order of name."""
        parent = Parent(key.resource.kind, key.name)
        readers = [d for d in self.dataflows(key.namespace) if parent in d.reads]
        return sorted((d.key for d in readers if d.key != key), key=lambda k: k.name)
