"""The controller of an instance, as handlers, gateway, introspection and metrics use it.

    handlers, gateway, introspection, metrics ──► InstanceFacade ──► controller.Instance, which only fleet/ touches

Reads return the controller's own objects (`Dataflow`, `Collection`, `Shard`): callers read them and change nothing.
"""

from __future__ import annotations

from collections.abc import Collection as Sized
from collections.abc import Iterable, Mapping, Sequence

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.hydration.hydration_history import Hydration
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.controller.instance import Instance
from tidemark_operator.controller.reports.replica_problems import EXECUTORS, STORAGE
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.resources.conditions.instance import ReplicaProblem
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.commands import DeleteShard, Peek
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import DataflowDescription


class InstanceFacade:
    """Base of `RunningInstance`. `core` is for modules of this package only (tests/tidy holds that)."""

    def __init__(self, core: Instance) -> None:
        self.core = core

    @property
    def shards(self) -> ShardBook:
        """The shards of the namespace: their frontiers and who reads them."""
        return self.core.shards

    def record_shards(self, described: Sequence[DescribedShard]) -> None:
        """Record the frontiers of shards that a replica has described."""
        self.core.shard_reports.described(described, now_ms())

    def delete_shard(self, replica: ReplicaId, id: ShardId, location: str) -> None:
        """Tell a replica to delete a shard; without effect where the replica is not connected."""
        self.core.send_to(replica, DeleteShard(id, location))

    def is_ingesting(self, id: GlobalId) -> bool:
        """Whether some replica was told to run this ingestion."""
        return self.core.ingestions.get(id) is not None

    # Installed dataflows and their exports.

    def owners(self) -> list[str]:
        """Owners of all dataflows, exporters before importers; a dropped one is listed until every replica is done."""
        return self.core.dataflows.owners()

    def dataflows(self) -> list[Dataflow]:
        """All dataflows, in the order of `owners`."""
        return [dataflow for owner in self.owners() if (dataflow := self.dataflow(owner)) is not None]

    def dataflow(self, owner: str) -> Dataflow | None:
        """The dataflow that is installed for this owner."""
        return self.core.dataflows.get(owner)

    def collections(self) -> Iterable[Collection]:
        """The exports of all dataflows."""
        return self.core.dataflows.collections()

    def collections_of(self, owner: str) -> list[Collection]:
        """The exports of one dataflow; empty where it is not installed."""
        return self.core.dataflows.collections_of(owner)

    def collection(self, id: GlobalId) -> Collection | None:
        """An export by its id."""
        return self.core.dataflows.collection(id)

    def index(self, id: GlobalId) -> Collection | None:
        """An index by its id, where it is installed and not dropped."""
        return self.core.dataflows.index(id)

    def incomplete_inputs(self, dataflow: Dataflow) -> list[ShardId | GlobalId]:
        """Inputs that are not complete at the dataflow's as_of yet: shards and indexes."""
        return self.core.dataflows.waits_for(dataflow)

    def may_end(self, description: DataflowDescription) -> bool:
        """Whether the dataflow can have come to its end: its last time has passed, or all its inputs are finished."""
        return self.core.dataflows.may_end(description, now_ms())

    def create_dataflow(self, dataflow: Dataflow, term: WriterTerm, reached: Mapping[GlobalId, Frontier]) -> None:
        """Install a dataflow. `reached`: write frontiers that an earlier operator recorded, as lower bounds."""
        self.core.create(dataflow, term)
        self.core.dataflows.seed(reached)

    def take_over(self, owner: str, term: WriterTerm) -> None:
        """Allow a dataflow to write what its predecessor wrote, under this term."""
        self.core.take_over(owner, term)

    def set_lag(self, owner: str, lag_ms: int) -> None:
        """Set how far back the exports of a dataflow can be read, in milliseconds."""
        self.core.dataflows.set_lag(owner, lag_ms)

    # Hydration.

    def set_hydration_concurrency(self, slots: int) -> None:
        """Set how many dataflows hydrate at a time on each replica."""
        self.core.hydration_policy.concurrency = slots

    def awaits_slot(self, exports: Sized[Collection]) -> bool:
        """Whether every connected replica keeps one of these exports waiting for a hydration slot."""
        return all(any(link.gate.is_waiting(export.id) for export in exports) for link in self.core.links)

    def hydrations(self) -> list[tuple[ReplicaId, Hydration]]:
        """The last hydrations that ended, and those under way, each with its replica."""
        return [*self.core.hydrations, *self.core.hydrating()]

    def hydrating_suspects(self) -> list[tuple[str, ReplicaId]]:
        """Suspects that occupy a hydration slot, and where: (owner, replica)."""
        slots = [(owner, replica) for replica in self.core.replicas for owner in self.core.occupants(replica) or ()]
        return [slot for slot in slots if self.core.hydration_policy.standing(slot[0]) is HydrationStanding.SUSPECT]

    # What replicas report of themselves.

    def storage_problems(self) -> tuple[ReplicaProblem, ...]:
        """Connected replicas that cannot use the object store, in order of name."""
        return self.core.replica_problems.all(STORAGE)

    def executor_problem(self, replica: ReplicaId) -> ReplicaProblem | None:
        """The reason why a replica lacks executors, where it reports that."""
        return self.core.replica_problems.of(EXECUTORS, replica)

    # Counts for metrics.

    def pending_peeks(self) -> list[Peek]:
        """Peeks that no replica has answered yet."""
        return self.core.peeks.pending()

    @property
    def queued_commands(self) -> int:
        """Commands that wait for replicas to take them."""
        return sum(link.queued for link in self.core.links)

    @property
    def gated_dataflows(self) -> int:
        """Dataflows that wait for a hydration slot, summed over replicas."""
        return sum(link.gate.waiting_count for link in self.core.links)

    @property
    def history_commands(self) -> int:
        """Commands that a new replica would receive."""
        return sum(1 for _ in self.core.history.replay())

    @property
    def history_dataflows(self) -> int:
        """Dataflows among those commands."""
        return self.core.history.dataflow_count

    @property
    def refused_reports(self) -> int:
        """Reports that would have moved a frontier back, over all exports and replicas."""
        return sum(on.refused_reports for export in self.collections() for on in export.replicas.values())
