"""The dataflows of an instance and the collections they export: what each reads, and what may be compacted.

    shards ──► dataflow a ──► index i ──► dataflow b ──► view v        v's since holds i, i's since holds the shards

A dataflow that imports an index is created after its exporter, so replicas always receive them in that order, and is
scheduled once the index is past its as_of. A successor runs beside its predecessor and may not write the predecessor's
tables before `take_over`.

Pure bookkeeping: methods return the commands that follow, in the order in which they must be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark_operator.controller.frontiers.collection import Collection, ExportOnReplica
from tidemark_operator.controller.frontiers.dataflow_end import end_of, has_passed
from tidemark_operator.controller.frontiers.end_attribution import EndAttribution
from tidemark_operator.controller.frontiers.read_policy import before
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.frontiers.succession import Succession, is_level
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.commands import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    IndexTarget,
    Peek,
    Schedule,
)
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, ShardSink


@dataclass
class Dataflow:
    """One installed dataflow. `owner`: the revision of a resource, or the query, that it belongs to. `target`: the
    one replica whose stream a subscribe takes. `level_ms`: when it was last as far as its predecessor. `stays`: it
    belongs to a resource, although it may have a single time. `finished`: all its tables were finished at
    installation. `inherited`, `term`, `outrun`: whether another revision may have finished its tables
    (end_attribution.py)."""

    owner: str
    description: DataflowDescription
    lag_ms: int
    succession: Succession | None = None
    scheduled: bool = False
    dropped: bool = False
    target: ReplicaId | None = None
    level_ms: int | None = None
    stays: bool = False
    finished: bool = False
    inherited: frozenset[ShardId] = frozenset()
    term: WriterTerm = WriterTerm(0)
    outrun: bool = False

    @property
    def inputs(self) -> tuple[ShardId, ...]:
        """The shards that it reads."""
        return tuple(i.shard.shard_id for i in self.description.source_imports)

    @property
    def reads_own(self) -> bool:
        """Whether it is a continual task that reads its own output."""
        export = self.description.continual_task
        return export is not None and isinstance(export.sink, ContinualTaskSink) and export.sink.own is not None

    @property
    def is_query(self) -> bool:
        """Whether it exists to be read once; False for a resource's, which may also have a single time."""
        return self.description.is_one_shot and not self.stays

    @property
    def read_only(self) -> frozenset[GlobalId]:
        """Sinks whose shards its predecessor still writes."""
        return frozenset() if self.succession is None else self.succession.read_only

    @property
    def imports(self) -> tuple[GlobalId, ...]:
        """The indexes that it reads."""
        return tuple(i.id for i in self.description.index_imports)


class Dataflows:
    """All dataflows of one instance, by owner, and their collections, by id."""

    def __init__(self, shards: ShardBook) -> None:
        self._shards = shards
        self._by_owner: dict[str, Dataflow] = {}
        self._collections: dict[GlobalId, Collection] = {}
        self._successors: set[str] = set()
        self.end_attribution = EndAttribution(shards)

    def get(self, owner: str) -> Dataflow | None:
        """The dataflow of an owner."""
        return self._by_owner.get(owner)

    def owners(self) -> list[str]:
        """All owners, exporters before importers."""
        return list(self._by_owner)

    def collection(self, id: GlobalId) -> Collection | None:
        """The collection with this id, dropped or not."""
        return self._collections.get(id)

    def owner_of(self, id: GlobalId) -> str:
        """The owner of an export; empty where the export is gone."""
        collection = self._collections.get(id)
        return collection.owner if collection else ""

    def index(self, id: GlobalId) -> Collection | None:
        """The index, where it can be imported: installed and not dropped."""
        found = self._collections.get(id)
        return None if found is None or found.dropped or found.shard is not None else found

    def collections(self) -> Iterable[Collection]:
        """All collections; a dropped one stays until every replica is done with it."""
        return self._collections.values()

    def collections_of(self, owner: str) -> list[Collection]:
        """The exports of one owner's dataflow."""
        dataflow = self._by_owner.get(owner)
        return [self._collections[id] for id in dataflow.description.export_ids] if dataflow else []

    def create(self, dataflow: Dataflow, term: WriterTerm, replicas: list[ReplicaId]) -> list[Command]:
        """Install a dataflow: take the holds, then return the commands. Raises: ValueError where the owner has a
        dataflow already, or an imported index is not installed (a finished dataflow needs none)."""
        description = dataflow.description
        missing = [id for id in dataflow.imports if self.index(id) is None]
        if missing and not dataflow.finished:
            raise ValueError(f"{dataflow.owner} imports index {missing[0]}, which is not installed")
        if dataflow.owner in self._by_owner:
            raise ValueError(f"{dataflow.owner} has a dataflow already; it must be dropped and gone first")
        self._by_owner[dataflow.owner], dataflow.term = dataflow, term
        sinks = {e.id: e.sink.shard.shard_id for e in description.sink_exports if isinstance(e.sink, ShardSink)}
        for id in description.export_ids:
            collection = Collection(
                id,
                dataflow.owner,
                description.as_of,
                dataflow.inputs,
                dataflow.lag_ms,
                sinks.get(id),
                dataflow.imports,
                dataflow.reads_own,
                description.until,
            )
            collection.replicas = {r: ExportOnReplica(collection.since) for r in replicas}
            collection.write = Frontier.empty() if dataflow.finished else None
            self._collections[id] = collection
            for source in description.source_imports:
                self._shards.read(source.shard.shard_id, source.shard.location, collection.holder)
            self.hold_inputs(collection)
        if dataflow.succession is not None:
            self._successors.add(dataflow.owner)
        writable = (id for id in sinks if id not in dataflow.read_only)
        return [CreateDataflow(description), *(AllowWrites(id, term) for id in writable)]

    def take_over(self, owner: str, term: WriterTerm) -> list[Command]:
        """Let the dataflow write its predecessor's tables. Without effect the second time."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or dataflow.dropped:
            return []
        read_only = [id for id in dataflow.description.export_ids if id in dataflow.read_only]
        dataflow.succession = None
        self._successors.discard(owner)
        return [AllowWrites(id, term) for id in read_only]

    def compare(self, now_ms: int) -> None:
        """Note the successors that are level with their predecessors now."""
        for owner in self._successors:
            dataflow, exports = self._by_owner[owner], self.collections_of(owner)
            if dataflow.succession is not None and is_level(dataflow.succession, exports, self._collections):
                dataflow.level_ms = now_ms

    def visitors(self, owner: str | None, over: Iterable[ShardId] = ()) -> list[Dataflow]:
        """Queries, subscribes and copies that import an index of the owner's dataflow, and subscribes that read a
        shard in `over`: those would wait for changes for ever."""
        dataflow = self._by_owner.get(owner) if owner is not None else None
        exported = set() if dataflow is None or dataflow.dropped else set(dataflow.description.export_ids)
        passing = (d for d in self._by_owner.values() if d.is_query or d.description.is_transient)
        gone = frozenset(over)
        return [d for d in passing if exported & {*d.imports} or (not d.description.is_one_shot and gone & {*d.inputs})]

    def successor_since(self, owner: str) -> Frontier | None:
        """The since from which all of the dataflow's successor can be read; None where it has no successor."""
        exported = {c.id for c in self.collections_of(owner)}
        successions = ((d, d.succession) for d in map(self._by_owner.__getitem__, sorted(self._successors)))
        heirs = [d.owner for d, s in successions if s is not None and exported & set(s.predecessors.values())]
        return max((c.since for heir in heirs for c in self.collections_of(heir)), default=None)

    def drop(self, owner: str) -> list[Command]:
        """Drop the dataflow on every replica. Its holds stay until all replicas are done with it."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or dataflow.dropped:
            return []
        dataflow.dropped = True
        self._successors.discard(owner)
        for collection in self.collections_of(owner):
            collection.dropped, collection.since, collection.away = True, Frontier.empty(), {}
        return [AllowCompaction(id, Frontier.empty()) for id in dataflow.description.export_ids]

    def seed(self, reached: Mapping[GlobalId, Frontier]) -> None:
        """Raise write frontiers to what an earlier controller recorded, so that no frontier goes back."""
        for id, write in reached.items():
            collection = self._collections.get(id)
            if collection is not None and not collection.dropped and not self._is_transient(collection):
                collection.write = max(write, collection.write or write)

    def described(self, reached: Mapping[GlobalId, Frontier], now_ms: int) -> None:
        """Record how far the collections are on a replica."""
        self.seed({id: write for id, write in reached.items() if not write.is_empty})
        for collection in (self._collections.get(id) for id, write in reached.items() if write.is_empty):
            if collection is not None and not collection.dropped and not self._is_transient(collection):
                self.conclude(collection, now_ms)

    def conclude(self, collection: Collection, now_ms: int) -> bool:
        """A replica reports that the collection is finished: return whether its own dataflow finished it. Where
        another revision may have, the term is requested and the claim is looked at again."""
        dataflow = self._by_owner[collection.owner]
        return self.end_attribution.conclude(dataflow, collection, may_end=self.may_end(dataflow.description, now_ms))

    def concluded(self, now_ms: int) -> list[Collection]:
        """The claimed collections whose end has become known to be their own."""
        found = (self._collections.get(id) for id in self.end_attribution.claimed())
        return [collection for collection in found if collection is not None and self.conclude(collection, now_ms)]

    def _is_transient(self, collection: Collection) -> bool:
        """Whether the collection is a subscribe or a copy: this controller has not received what an earlier one has."""
        return self._by_owner[collection.owner].description.is_transient

    def set_lag(self, owner: str, lag_ms: int) -> None:
        """Set the read policy in milliseconds; it applies from the next compaction on."""
        for collection in self.collections_of(owner):
            collection.lag_ms = lag_ms
            if collection.shard is not None:
                self._shards.set_lag(collection.shard, lag_ms)

    def reap(self) -> list[str]:
        """Forget dropped dataflows that every replica is done with; return their owners."""
        gone = [o for o, d in self._by_owner.items() if d.dropped and all(c.is_gone for c in self.collections_of(o))]
        for owner in gone:
            for collection in self.collections_of(owner):
                self._release(collection)
                del self._collections[collection.id]
            del self._by_owner[owner]
        return gone

    def schedule(self) -> list[Command]:
        """Return `Schedule` for dataflows whose inputs have passed the as_of."""
        commands: list[Command] = []
        for dataflow in self._by_owner.values():
            if not dataflow.scheduled and not dataflow.dropped and not self.waits_for(dataflow):
                dataflow.scheduled = True
                commands += [Schedule(id) for id in dataflow.description.export_ids]
        return commands

    def is_beginning(self, owner: str, replica: ReplicaId) -> bool:
        """Whether the replica is hydrating the dataflow: all its imports are hydrated there, and it is not."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or not dataflow.scheduled:
            return False
        if not all(self.is_hydrated(id, replica) for id in dataflow.imports):
            return False
        found = [collection.replicas.get(replica) for collection in self.collections_of(owner)]
        return any(on is not None and not on.excluded and not on.hydrated for on in found)

    def is_answered(self, peek: Peek, replica: ReplicaId) -> bool:
        """Whether the replica is working on the peek. It is not where the peek waits for an index to hydrate."""
        if not isinstance(peek.target, IndexTarget) or self.is_hydrated(peek.target.id, replica):
            return True
        dataflow = self._by_owner.get(self.owner_of(peek.target.id))
        return dataflow is not None and dataflow.is_query and self.is_beginning(self.owner_of(peek.target.id), replica)

    def is_hydrated(self, id: GlobalId, replica: ReplicaId) -> bool:
        """Whether this replica has hydrated the export."""
        collection = self._collections.get(id)
        on = collection.replicas.get(replica) if collection is not None else None
        return on is not None and on.hydrated

    def may_end(self, description: DataflowDescription, now_ms: int) -> bool:
        """Whether the dataflow can have ended: its last time has passed, or all its inputs are finished, as far as
        is known."""
        if has_passed(end_of(description), now_ms):
            return True
        sources = (i.shard.shard_id for i in description.source_imports)
        shards = (known.upper if (known := self._shards.frontiers(id)) else None for id in sources)
        indexes = (c.write if (c := self._collections.get(i.id)) else None for i in description.index_imports)
        return all(upper is not None and upper.is_empty for upper in (*shards, *indexes))

    def waits_for(self, dataflow: Dataflow) -> list[ShardId | GlobalId]:
        """Inputs that are not complete at the as_of yet. An index is never complete before its own dataflow is
        scheduled, so exporters are scheduled, and hydrate, before their importers."""
        if dataflow.finished:
            return []
        shards: Iterator[tuple[ShardId | GlobalId, Frontier | None]]
        shards = ((id, f.upper if (f := self._shards.frontiers(id)) else None) for id in dataflow.inputs)
        indexes = ((id, c.write if (c := self.index(id)) else None) for id in dataflow.imports)
        as_of = dataflow.description.as_of
        return [id for id, upper in (*shards, *indexes) if upper is None or upper.less_equal(as_of)]

    def compact(self, now_ms: int) -> list[Command]:
        """Advance the sinces by the read policy, then the holds on inputs."""
        commands, stands = list[Command](), self._shards.stands()
        for collection in self._collections.values():
            since = collection.since if stands else collection.next_since(now_ms)
            if since > collection.since:
                collection.since = since
                commands.append(AllowCompaction(collection.id, since))
            self.hold_inputs(collection)
        return commands

    def compacted(self, sinces: Mapping[GlobalId, Frontier], now_ms: int) -> list[Command]:
        """Follow the compaction that an earlier operator allowed a replica. Peeks and importers on other replicas
        keep their holds; each replica protects what it reads itself. Importers come first, as they hold their
        inputs."""
        importers = {c.holder: c for c in self._collections.values() if c.imports}
        commands: list[Command] = []
        for collection in reversed(self._collections.values()):
            reported = sinces.get(collection.id)
            if reported is None or collection.dropped:
                continue
            promised = (importers[h].since if h in importers else f for h, f in collection.holds.items())
            since = min(reported, collection.policy(now_ms), meet(promised))
            if since > collection.since:
                collection.since = since
                commands.append(AllowCompaction(collection.id, since))
        return commands

    def hold_inputs(self, collection: Collection) -> None:
        """Hold the inputs from the least time that the collection or one of its replicas still reads."""
        frontier = collection.input_hold()
        for shard in collection.inputs:
            self._shards.hold(shard, collection.holder, frontier)
        if collection.reads_own and collection.shard is not None:
            self._shards.hold(collection.shard, collection.holder, before(frontier))
        for id in collection.imports:
            if index := self._collections.get(id):
                index.hold(collection.holder, frontier)

    def _release(self, collection: Collection) -> None:
        self._shards.release(collection.holder)
        for id in collection.imports:
            if index := self._collections.get(id):
                index.hold(collection.holder, Frontier.empty())
