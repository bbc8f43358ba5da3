"""The operator's part in the model: the API server's objects, and the operator's decisions about them.

    durable    the marks in the statuses, and the specs: all that a new operator knows
    registry   the operator's memory; deciding, installing and judging are the real functions on it

Plans are copies of a table or of an index; storing and marking are assignments, between which the operator may die.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tests.model.shards import Shards, SimShard
from tests.model.simulation import TABLES
from tests.replica.plans import COLUMNS, copies, shard
from tidemark_operator.catalogue.dataflow_state import (
    DataflowSpec,
    DataflowState,
    PendingRevision,
    ReplacementId,
    RevisionSet,
)
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.replacement_closure import as_replaced
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.instance import Instance
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.instance_facade import InstanceFacade
from tidemark_operator.handlers.deletion.dataflow_deletion import drop_revisions, forget_revisions
from tidemark_operator.handlers.holds.revision_holds import hold_inputs, retire
from tidemark_operator.handlers.revisions.as_of_selection import first_as_of
from tidemark_operator.handlers.revisions.installer import install
from tidemark_operator.handlers.revisions.replacement_decision import Keep, Replace, Serve, decide
from tidemark_operator.handlers.revisions.revision_marks import promote, roll_forward
from tidemark_operator.handlers.revisions.takeover import obstacle_of
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.assemble import with_as_of
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision, Parent, view_shards
from tidemark_operator.resources.conditions.dataflow import Planning
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.planning import PlannedExport
from tidemark_protocol.messages.responses import Description

NAMESPACE, INSTANCE, LAG = "ns", "default", 50


@dataclass(frozen=True)
class Spec:
    """A Dataflow as the user has it: `reads` a table or another Dataflow's index; `edit` tells one SQL from another,
    `version` one set of the table's columns from another."""

    kind: str
    reads: str
    edit: int = 0
    version: int = 1

    @property
    def digest(self) -> str:
        return f"{self.edit}, v{self.version}"


@dataclass
class Durable:
    """One Dataflow at the API server. `numbers`: of all revisions that were ever stored."""

    spec: Spec
    active: ActiveRevision | None = None
    pending: PendingRevision | None = None
    numbers: int = 0


@dataclass
class Seen:
    description: Description | None = None


@dataclass
class Running(InstanceFacade):
    """The instance, as the installer sees it."""

    core: Instance
    take: Callable[[list[Notice]], None]
    replicas: dict[ReplicaId, Seen] = field(default_factory=dict)
    namespace: str = NAMESPACE
    name: str = INSTANCE

    def drop(self, owner: str, over: Iterable[ShardId] = (), cause: str = "") -> None:
        self.take(self.core.drop(owner, over, cause))

    def flush(self) -> None:
        """Links are drained by the replicas' deliveries."""


class Operator:
    """One process. `reached`: frontiers that statuses showed."""

    def __init__(
        self, durable: dict[str, Durable], shards: Shards, running: Running, reached: dict[GlobalId, Frontier]
    ) -> None:
        self.durable, self.shards, self.running, self.registry = durable, shards, running, Registry()
        for name, stored in durable.items():
            state = self._state(name, stored.spec)
            state.revisions = RevisionSet(stored.active, stored.pending, reached=reached)
            hold_inputs(self._book, state)
        roll_forward(self._book, self.states)

    @property
    def states(self) -> list[DataflowState]:
        return self.registry.dataflows(NAMESPACE)

    def state(self, name: str) -> DataflowState | None:
        return self.registry.dataflow(_key(name))

    def create(self, name: str, spec: Spec, reached: dict[GlobalId, Frontier]) -> None:
        self.durable[name] = Durable(spec)
        state = self._state(name, spec)
        state.revisions = replace(state.revisions, reached=reached)

    def edit(self, name: str, spec: Spec) -> None:
        self.durable[name].spec = spec
        state = self.state(name)
        assert state is not None
        state.spec = replace(state.spec, digest=spec.digest)

    def drop(self, name: str) -> None:
        """Waits, as long as others read it."""
        state = self.state(name)
        if state is None or self.registry.users(state.key):
            return
        state.spec = replace(state.spec, deleting=True)
        drop_revisions(self.running, state, "")  # type: ignore[arg-type]
        self.registry.forget(state.key)
        forget_revisions(self._book, state)
        del self.durable[name]

    def work(self, now_ms: int) -> None:
        """Every Dataflow is reconciled once."""
        for state in self.states:
            self.mark(state)
            self.install(state)
        for state in self.states:
            self.take_over(state, now_ms)

    def mark(self, state: DataflowState) -> None:
        """Its status is as it should be: what others' edits have made of it, and what its own spec makes."""
        stored = self.durable[state.key.name]
        stored.active, stored.pending = state.active, state.pending
        state.revisions = replace(state.revisions, unmarked=False)
        match decide(state, self.states):
            case Serve() if state.pending is not None:
                stored.pending = None
                old = state.pending.mark
                state.revisions = replace(state.revisions, pending=None)
                retire(self._book, state, old)
            case Replace(joining):
                try:
                    self._replace(state, stored, joining)
                except Waiting as waiting:
                    state.obstacles.planning = Planning(str(waiting))
            case Serve() | Keep():
                pass

    def install(self, state: DataflowState) -> None:
        install(self.running, self.registry, state)  # type: ignore[arg-type]

    def take_over(self, root: DataflowState, now_ms: int, dies: bool = False) -> bool:
        """Whether it has. `dies`: the operator does, after the write that is the moment."""
        if root.pending is None or root.pending.replacement.dataflow != root.key.name:
            return False
        members, held = obstacle_of(root, self.registry, lambda _: self.running, now_ms)  # type: ignore[arg-type, return-value]
        if held is not None:
            return False
        stored = self.durable[root.key.name]
        stored.active, stored.pending = root.pending.mark, None
        for member in members:
            assert member.pending is not None
            self._allow(member.pending.mark)
        if dies:
            return True
        for member in members:
            promote(self._book, member)
            self._serves(member)
        for member in members:
            self.install(member)
        return True

    def _serves(self, state: DataflowState) -> None:
        """Reads are answered from the first moment on."""
        assert state.active is not None
        for collection in self.running.core.dataflows.collections_of(state.installation(state.active)):
            assert collection.hydrated, f"{collection.id} took over before it was hydrated"

    def _replace(self, state: DataflowState, stored: Durable, joining: ReplacementId | None) -> None:
        mark = self._planned(state, stored, joining)
        retired = state.pending and state.pending.mark
        stored.numbers = mark.number
        for view in view_shards(mark.revision.description):
            self.shards.setdefault(view.shard_id, SimShard())
        if state.active is None:
            stored.active = mark
            state.revisions = replace(state.revisions, active=mark)
            self._allow(mark)
        else:
            together = joining or ReplacementId(state.key.name, mark.name)
            stored.pending = PendingRevision(mark, together)
            state.revisions = replace(state.revisions, pending=stored.pending)
            before = {v.shard_id for v in view_shards(state.active.revision.description)}
            if not before & {v.shard_id for v in view_shards(mark.revision.description)}:
                self._allow(mark)
        if retired is not None:
            retire(self._book, state, retired)
        hold_inputs(self._book, state, only=mark)

    def _planned(self, state: DataflowState, stored: Durable, joining: ReplacementId | None) -> ActiveRevision:
        name, spec, number = state.key.name, stored.spec, stored.numbers + 1
        source, imports, reads = shard(spec.reads, ""), None, ()
        if spec.reads in self.durable:
            view = {d.key.name: d for d in as_replaced(self.states, joining)}
            exporter = view[spec.reads].active
            if exporter is None:
                raise Waiting("WaitingForInputs", spec.reads)
            source, imports = None, exporter.revision.description.index_exports[0].id
            reads = (Parent("Dataflow", spec.reads),)
        elif spec.reads not in TABLES:  # dropped before this was planned, so that nobody knew of a reader
            raise Waiting("WaitingForInputs", spec.reads)
        description = copies(
            f"{name}/{number}",
            0,
            source=source,
            index=f"{name}/i/{number}" if spec.kind == "index" else None,
            view=shard(_table(state, spec, number), "") if spec.kind == "view" else None,
            imports_index=imports,
        )
        as_of = first_as_of(self.running, self.registry, state, description)  # type: ignore[arg-type]
        kind, export = ("index", "i") if spec.kind == "index" else ("materializedView", "v")
        exports = (PlannedExport(export, kind, description.objects[0].id, COLUMNS, (0,)),)
        digest = Digest(f"{name} {number}")
        revision = DataflowRevision(with_as_of(description, as_of), exports, reads, digest, number, spec.digest)
        return ActiveRevision(f"{name}-r{number}", number, 1, spec.digest, revision)

    def _allow(self, mark: ActiveRevision) -> None:
        """From now on it may write; before, that would be a violation."""
        for view in view_shards(mark.revision.description):
            simulated = self.shards[view.shard_id]
            simulated.allowed = max(simulated.allowed or WriterTerm(0), WriterTerm(mark.revision.writer_term))

    def _state(self, name: str, spec: Spec) -> DataflowState:
        state = DataflowState(_key(name), name, INSTANCE, DataflowSpec(spec.digest, lag_ms=LAG))
        return self.registry.put_dataflow(state)

    @property
    def _book(self) -> ShardBook:
        return self.running.core.shards


def _table(state: DataflowState, spec: Spec, number: int) -> str:
    """The table of the serving revision, if its columns are the same; or one that no other revision ever had."""
    same = state.active is not None and state.active.spec_digest.endswith(f", v{spec.version}")
    kept = view_shards(state.active.revision.description) if state.active is not None and same else []
    return kept[0].shard_id if kept else f"{state.key.name}/v/v{number}"


def _key(name: str) -> Key:
    return Key(DATAFLOWS, NAMESPACE, name)
