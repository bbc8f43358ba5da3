"""The dataflows of an instance and the collections they export: who reads what, and what may be compacted.

    shards ──► dataflow a ──► index i ──► dataflow b ──► view v        v's since holds i, i's since holds the shards

A dataflow that imports an index is created after the one that exports it, so that replicas always hear of them in that
order, and scheduled once the index is past its as_of. One that is to succeed another runs beside it, and may not write
what the other writes before it is told that it has taken over.

Purely bookkeeping: methods return the commands that follow, in the order in which they must be sent.
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
    """One installed dataflow; `owner` is the revision of a resource, or the query, that it is there for. `target`: of a
    subscribe, the one replica whose stream is told. `level_ms`: when it was last as far as the one that it is to
    succeed. `stays`: it is of a resource, also where it has but one time; `finished`: so were all of its tables.
    `inherited`, `term`, `outrun`: whether its tables' end may be another's (end_attribution.py)."""

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
        return tuple(i.shard.shard_id for i in self.description.source_imports)

    @property
    def reads_own(self) -> bool:
        """Whether it is a continual task that reads its own output."""
        export = self.description.continual_task
        return export is not None and isinstance(export.sink, ContinualTaskSink) and export.sink.own is not None

    @property
    def is_query(self) -> bool:
        """Whether it is there to be read once; not one of a resource, which may have but one time."""
        return self.description.is_one_shot and not self.stays

    @property
    def read_only(self) -> frozenset[GlobalId]:
        """Sinks that another dataflow still writes."""
        return frozenset() if self.succession is None else self.succession.read_only

    @property
    def imports(self) -> tuple[GlobalId, ...]:
        return tuple(i.id for i in self.description.index_imports)


class Dataflows:
    def __init__(self, shards: ShardBook) -> None:
        self._shards = shards
        self._by_owner: dict[str, Dataflow] = {}
        self._collections: dict[GlobalId, Collection] = {}
        self._successors: set[str] = set()
        self.end_attribution = EndAttribution(shards)

    def get(self, owner: str) -> Dataflow | None:
        return self._by_owner.get(owner)

    def owners(self) -> list[str]:
        return list(self._by_owner)

    def collection(self, id: GlobalId) -> Collection | None:
        return self._collections.get(id)

    def owner_of(self, id: GlobalId) -> str:
        """Of an export; empty where it is gone."""
        collection = self._collections.get(id)
        return collection.owner if collection else ""

    def index(self, id: GlobalId) -> Collection | None:
        """The index, if it can be imported: it is installed, and not dropped."""
        found = self._collections.get(id)
        return None if found is None or found.dropped or found.shard is not None else found

    def collections(self) -> Iterable[Collection]:
        """All that there are, dropped ones too until they are gone."""
        return self._collections.values()

    def collections_of(self, owner: str) -> list[Collection]:
        dataflow = self._by_owner.get(owner)
        return [self._collections[id] for id in dataflow.description.export_ids] if dataflow else []

    def create(self, dataflow: Dataflow, term: WriterTerm, replicas: list[ReplicaId]) -> list[Command]:
        """Installs it: holds first, then commands. The indexes that it imports are installed, unless it is finished."""
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
        """It may write what its predecessor wrote. Once."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or dataflow.dropped:
            return []
        read_only = [id for id in dataflow.description.export_ids if id in dataflow.read_only]
        dataflow.succession = None
        self._successors.discard(owner)
        return [AllowWrites(id, term) for id in read_only]

    def compare(self, now_ms: int) -> None:
        """Notes it where a dataflow is level with its predecessor."""
        for owner in self._successors:
            dataflow, exports = self._by_owner[owner], self.collections_of(owner)
            if dataflow.succession is not None and is_level(dataflow.succession, exports, self._collections):
                dataflow.level_ms = now_ms

    def visitors(self, owner: str | None, over: Iterable[ShardId] = ()) -> list[Dataflow]:
        """Queries, subscribes and copies that import an index of the dataflow's, if one goes: nobody waits for their
        end. And subscribes that read shards which are over: they would wait for changes for ever."""
        dataflow = self._by_owner.get(owner) if owner is not None else None
        exported = set() if dataflow is None or dataflow.dropped else set(dataflow.description.export_ids)
        passing = (d for d in self._by_owner.values() if d.is_query or d.description.is_transient)
        gone = frozenset(over)
        return [d for d in passing if exported & {*d.imports} or (not d.description.is_one_shot and gone & {*d.inputs})]

    def successor_since(self, owner: str) -> Frontier | None:
        """Where what is to take over from a dataflow can be read: all of it; None where nothing is."""
        exported = {c.id for c in self.collections_of(owner)}
        successions = ((d, d.succession) for d in map(self._by_owner.__getitem__, sorted(self._successors)))
        heirs = [d.owner for d, s in successions if s is not None and exported & set(s.predecessors.values())]
        return max((c.since for heir in heirs for c in self.collections_of(heir)), default=None)

    def drop(self, owner: str) -> list[Command]:
        """Drops it on every replica. Its holds stay until all of them are done with it."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or dataflow.dropped:
            return []
        dataflow.dropped = True
        self._successors.discard(owner)
        for collection in self.collections_of(owner):
            collection.dropped, collection.since, collection.away = True, Frontier.empty(), {}
        return [AllowCompaction(id, Frontier.empty()) for id in dataflow.description.export_ids]

    def seed(self, reached: Mapping[GlobalId, Frontier]) -> None:
        """How far collections were before anybody told this controller: so that frontiers never go back."""
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
        """A replica says that the collection is finished. Whether it is, by what is known; else it is asked again. One
        whose table another revision has finished is not: it holds what that one made."""
        dataflow = self._by_owner[collection.owner]
        return self.end_attribution.conclude(dataflow, collection, may_end=self.may_end(dataflow.description, now_ms))

    def concluded(self, now_ms: int) -> list[Collection]:
        """Those that are finished, by what is known now."""
        found = (self._collections.get(id) for id in self.end_attribution.claimed())
        return [collection for collection in found if collection is not None and self.conclude(collection, now_ms)]

    def _is_transient(self, collection: Collection) -> bool:
        """What a replica told an earlier client of a subscribe, this one has not heard."""
        return self._by_owner[collection.owner].description.is_transient

    def set_lag(self, owner: str, lag_ms: int) -> None:
        """Another read policy: from the next compaction on."""
        for collection in self.collections_of(owner):
            collection.lag_ms = lag_ms
            if collection.shard is not None:
                self._shards.set_lag(collection.shard, lag_ms)

    def reap(self) -> list[str]:
        """Forgets what is dropped and gone; the owners of it."""
        gone = [o for o, d in self._by_owner.items() if d.dropped and all(c.is_gone for c in self.collections_of(o))]
        for owner in gone:
            for collection in self.collections_of(owner):
                self._release(collection)
                del self._collections[collection.id]
            del self._by_owner[owner]
        return gone

    def schedule(self) -> list[Command]:
        """Schedule for what has waited for its inputs to pass its as_of."""
        commands: list[Command] = []
        for dataflow in self._by_owner.values():
            if not dataflow.scheduled and not dataflow.dropped and not self.waits_for(dataflow):
                dataflow.scheduled = True
                commands += [Schedule(id) for id in dataflow.description.export_ids]
        return commands

    def is_beginning(self, owner: str, replica: ReplicaId) -> bool:
        """Whether the replica computes the beginning of it: all that it imports is hydrated there, and it is not."""
        dataflow = self._by_owner.get(owner)
        if dataflow is None or not dataflow.scheduled:
            return False
        if not all(self.is_hydrated(id, replica) for id in dataflow.imports):
            return False
        found = [collection.replicas.get(replica) for collection in self.collections_of(owner)]
        return any(on is not None and not on.excluded and not on.hydrated for on in found)

    def is_answered(self, peek: Peek, replica: ReplicaId) -> bool:
        """Whether the replica is at the peek, or at what is there for it: where the index is not hydrated, it waits."""
        if not isinstance(peek.target, IndexTarget) or self.is_hydrated(peek.target.id, replica):
            return True
        dataflow = self._by_owner.get(self.owner_of(peek.target.id))
        return dataflow is not None and dataflow.is_query and self.is_beginning(self.owner_of(peek.target.id), replica)

    def is_hydrated(self, id: GlobalId, replica: ReplicaId) -> bool:
        """On that very replica."""
        collection = self._collections.get(id)
        on = collection.replicas.get(replica) if collection is not None else None
        return on is not None and on.hydrated

    def may_end(self, description: DataflowDescription, now_ms: int) -> bool:
        """The end comes with that of its times, or with that of all inputs, as far as they are known."""
        if has_passed(end_of(description), now_ms):
            return True
        sources = (i.shard.shard_id for i in description.source_imports)
        shards = (known.upper if (known := self._shards.frontiers(id)) else None for id in sources)
        indexes = (c.write if (c := self._collections.get(i.id)) else None for i in description.index_imports)
        return all(upper is not None and upper.is_empty for upper in (*shards, *indexes))

    def waits_for(self, dataflow: Dataflow) -> list[ShardId | GlobalId]:
        """Inputs that are not complete at the as_of yet: shards, and indexes. An index that its own dataflow waits for
        cannot be complete, so exporters are scheduled, and admitted to hydrate, before their importers."""
        if dataflow.finished:
            return []
        shards: Iterator[tuple[ShardId | GlobalId, Frontier | None]]
        shards = ((id, f.upper if (f := self._shards.frontiers(id)) else None) for id in dataflow.inputs)
        indexes = ((id, c.write if (c := self.index(id)) else None) for id in dataflow.imports)
        as_of = dataflow.description.as_of
        return [id for id, upper in (*shards, *indexes) if upper is None or upper.less_equal(as_of)]

    def compact(self, now_ms: int) -> list[Command]:
        """Advances sinces, then what the inputs must keep."""
        commands: list[Command] = []
        for collection in self._collections.values():
            since = collection.next_since(now_ms)
            if since > collection.since:
                collection.since = since
                commands.append(AllowCompaction(collection.id, since))
            self.hold_inputs(collection)
        return commands

    def compacted(self, sinces: Mapping[GlobalId, Frontier], now_ms: int) -> list[Command]:
        """A replica has compacted its exports so far for an operator before this one: nobody reads them earlier, but
        who has come since. Of an index those are peeks, and where importers begin on replicas to come; what each
        replica reads of its own it protects itself. Importers, which come last, are first."""
        importers = {c.holder: c for c in self._collections.values() if c.imports}
        commands: list[Command] = []
        for collection in reversed(self._collections.values()):
            said = sinces.get(collection.id)
            if said is None or collection.dropped:
                continue
            promised = (importers[h].since if h in importers else f for h, f in collection.holds.items())
            since = min(said, collection.policy(now_ms), meet(promised))
            if since > collection.since:
                collection.since = since
                commands.append(AllowCompaction(collection.id, since))
        return commands

    def hold_inputs(self, collection: Collection) -> None:
        """Whatever it and its replicas still read is kept."""
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
