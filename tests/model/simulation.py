"""A controller, replicas and shards, and everything that can happen to them, one thing at a time.

    stored        Dataflows as the API server has them: what a new operator begins with
    instance      the controller's core; a restart makes a new one
    replicas      incarnations; connections with what is under way in both directions
    shards        durable

`Simulation` offers the events; each raises Violation, or an AssertionError, where a promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.model import finished_tables, leases, unexpected_messages
from tests.model.model_state import Connection, Stored
from tests.model.pending_peeks import Questions, peek
from tests.model.replica import SimReplica
from tests.model.shards import Shards, SimShard, Violation
from tests.model.subscribes import Clients
from tests.replica.plans import copies, shard
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.controller_events import Notice, SuspectCleared
from tidemark_operator.controller.frontiers.as_of import AsOfRequest, Input, select_as_of
from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.lease_book import LEASE_MS
from tidemark_operator.controller.frontiers.shards import FrontierPair, ShardBook
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy, HydrationStanding
from tidemark_operator.controller.instance import Instance
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.handlers.revisions.as_of_selection import running_sinces
from tidemark_operator.planning.revision import view_shards
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Description, Response
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.refresh import RefreshSchedule

LAG = 50
TABLES = (ShardId("t0"), ShardId("t1"))
REPLICAS = (ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3"))
MAINTENANCE_MS = 10_000


class Simulation:
    def __init__(self) -> None:
        self.shards: Shards = {id: SimShard(upper=100) for id in TABLES}
        self.now, self._connections, self.created, self._peeks = 10_000_000, unexpected_messages.FIRST_CONNECTION, 0, 0
        self.late: dict[ReplicaId, list[tuple[int, Response]]] = {}
        self.stored: dict[str, Stored] = {}
        self.reached: dict[GlobalId, Frontier] = {}
        self.replicas = {name: SimReplica(self.shards) for name in REPLICAS}
        self.connections: dict[ReplicaId, Connection] = {}
        self.descriptions: dict[ReplicaId, Description] = {}
        self.suspects: set[str] = set()
        self.questions = Questions(self)
        self._stand_until = 0
        self._begin()
        self.leases = leases.Clients(self)

    # --- events ---

    def new_operator(self) -> None:
        """The one before is gone: what it knew, its connections, its peeks. Replicas notice when they are greeted."""
        self._remember_reached()
        self.connections.clear()
        self.descriptions.clear()
        self.questions.asked.clear()
        self._stand_until = self.now + LEASE_MS
        self._begin()
        self.leases.begin()

    def _begin(self) -> None:
        """A controller that knows what is stored."""
        self.book = ShardBook(lambda: self.now < self._stand_until)
        hydration_policy = HydrationPolicy(concurrency=2, standing=self._standing)
        self.instance, self.clients = Instance(self.book, hydration_policy), Clients(self)
        for name in REPLICAS:
            self.instance.disconnected.expect(name, self.now)
        for id in TABLES:
            self.book.register(id, str(id), LAG, owned=True)
        for owner, stored in self.stored.items():
            self._hold_stored(owner, stored)

    def create(self, kind: str, table: ShardId, reads: str | None, until: Time | None = None) -> None:
        """A Dataflow over a table, or over another's index."""
        self.created += 1
        name = f"d{self.created}"
        source = shard(table, "") if reads is None else None
        view = shard(f"{name}-shard", "") if "view" in kind else None
        index = f"{name}-index" if "index" in kind else None
        imports = None if reads is None else f"{reads}-index"
        refresh = RefreshSchedule(every_ms=1000) if "refreshed" in kind else None
        description = copies(name, 0, source=source, view=view, index=index, imports_index=imports, refresh=refresh)
        description = replace(description, until=until)
        for v in view_shards(description):
            self.shards[v.shard_id] = SimShard()
        try:
            self._install(name, Stored(description, reads), first=True)
        except (Waiting, Rejected):
            return

    def drop(self, owner: str) -> None:
        """Refused (InUse) while others read it."""
        if any(s.reads == owner for s in self.stored.values()):
            return
        self.book.release(f"stored {owner}")
        for view in view_shards(self.stored.pop(owner).description):
            self.book.forget(view.shard_id)
        self.clients.orphan(owner)
        self.take(self.instance.drop(owner))

    def advance(self, table: ShardId, by: int) -> None:
        """New data."""
        self.shards[table].upper += by

    def connect(self, name: ReplicaId, tell: Callable[[Description], Description] = lambda true: true) -> None:
        """Connect as the operator does: describe, install what is stored, greet, replay. `tell`: what it says of
        itself."""
        self._connections += 1
        self.cut(name)
        replica = self.replicas[name]
        self.descriptions[name] = tell(replica.describe([s.id for s in self.book.all()]))
        self.instance.shard_reports.described(self.descriptions[name].shards, self.now)
        self._restore()
        self.take(self.instance.connect(name, self._connections, self.now, has=self.descriptions[name]))
        self.connections[name] = Connection(self._connections)
        replica.greet(self._connections)

    def cut(self, name: ReplicaId) -> None:
        """The controller loses the replica. Messages of the replica may still arrive: they are nobody's."""
        old = self.connections.pop(name, None)
        if old is not None:
            self.clients.lose(name)
            self.questions.lose(name)
            self.take(self.instance.disconnect(name, self.now))
            reported = [*old.outbox, *self.replicas[name].drain()]
            self.late.setdefault(name, []).extend((old.number, response) for response in reported)

    def arrive_late(self, name: ReplicaId) -> None:
        """The messages of connections that are no more."""
        known = self._known()
        for number, response in self.late.pop(name, []):
            self.take(self.instance.receive(name, number, response, self.now))
        assert self._known() == known, "an earlier connection was believed"

    def kill(self, name: ReplicaId) -> None:
        """SIGKILL: the replica comes back with nothing."""
        self.cut(name)
        self.replicas[name] = SimReplica(self.shards, self.replicas[name].understands)

    def deliver(self, name: ReplicaId, most: int) -> None:
        """Commands reach the replica, in order."""
        if connection := self.connections.get(name):
            link = self.instance.link(name, connection.number)
            assert link is not None
            connection.inbox += link.drain()
            arrived, connection.inbox = connection.inbox[:most], connection.inbox[most:]
            for command in arrived:
                connection.audit.take(command)
                self.replicas[name].take(command)

    def hear(self, name: ReplicaId, most: int, times: int = 1) -> None:
        """Responses reach the controller, in order; from a replica that repeats itself, each several times."""
        if connection := self.connections.get(name):
            connection.outbox += self.replicas[name].drain()
            arrived, connection.outbox = connection.outbox[:most], connection.outbox[most:]
            for response in arrived:
                for _ in range(times):
                    self.said(name, response)

    def notice(self, name: ReplicaId) -> None:
        """A replica learns that it has no client any more, if so it is."""
        if name not in self.connections:
            self.replicas[name].hang_up()

    def intrude(self, name: ReplicaId, seed: int) -> None:
        """A stranger comes to the replica: an older client, or one that speaks garbage."""
        self.replicas[name].intrude(unexpected_messages.commands(seed))

    def garble(self, name: ReplicaId, seed: int) -> None:
        """The replica speaks garbage: what is understood is about nobody, what is not ends the connection."""
        responses, goes_on = unexpected_messages.responses(seed)
        known = self._known()
        for response in responses:
            self.said(name, response)
        assert self._known() == known, "garbage was believed"
        if not goes_on:
            self.cut(name)

    def said(self, name: ReplicaId, response: Response) -> None:
        """True or not."""
        if connection := self.connections.get(name):
            self.take(self.instance.receive(name, connection.number, response, self.now))
            link = self.instance.link(name, connection.number)
            if link is not None and link.refused is not None:
                self.cut(name)

    def work(self, name: ReplicaId, fuel: int) -> None:
        self.replicas[name].work(fuel)

    def maintain(self) -> None:
        self.now += MAINTENANCE_MS
        self._restore()
        self.leases.book.maintain(self.now)
        self.take(self.instance.maintain(self.now))

    def suspect(self, owner: str) -> None:
        """It is blamed for a death: it hydrates last and alone, on every process to come."""
        self.suspects.add(owner)

    def ask(self, owner: str, back: int, target: ReplicaId | None = None) -> None:
        """A peek of an index at a time that can be read, `back` before the newest."""
        id = GlobalId(f"{owner}-index")
        index = self.instance.dataflows.index(id)
        if index is None or index.write is None or index.write <= index.since:
            return
        time = max(index.since.encode(), index.write.encode() - 1 - back)
        self._peeks += 1
        self.questions.ask(peek(f"peek {self._peeks}", id, time), target)

    # --- promises ---

    def check(self) -> None:
        """Check what holds at every moment."""
        for collection in self._collections():
            before = self.reached.get(collection.id)
            assert before is None or collection.write is None or collection.write >= before, "a frontier went back"
            begun = collection.write is not None and collection.as_of < collection.write.encode()
            assert not begun or collection.since <= collection.write, "what is incomplete was compacted"
        self._remember_reached()
        self.leases.check()
        for name, connection in self.connections.items():
            link = self.instance.link(name, connection.number)
            if link is not None and self.replicas[name].is_served and (stalled := self.replicas[name].stalled):
                raise Violation(f"{name} cannot go on: {stalled[0]}")

    def settle(self) -> None:
        """Nothing more happens, but what has begun: then everything is as it should be."""
        for name in REPLICAS:
            self.connect(name)
        for _ in range(12):
            self.exchange(REPLICAS)
        self.clients.settle()
        self.leases.end_all()
        self.exchange(REPLICAS)
        complete = {owner: self.complete(owner) for owner in self.stored}
        assert set(self.instance.dataflows.owners()) == set(self.stored), "what was dropped is forgotten"
        over = {o for o, reached in complete.items() if finished_tables.is_over(self.stored[o].description, reached)}
        for name, replica in self.replicas.items():
            processed = {d.description.name: d.processed.encode() for d in replica.dataflows}
            assert processed == {o: complete[o] for o in complete if o not in over or o in processed}, name
        self.questions.settle()
        holders = {h for s in self.book.all() for h in s.holds}
        readers = [s.description for o, s in self.stored.items() if s.description.source_imports and o not in over]
        assert holders == {f"export {id}" for d in readers for id in d.export_ids}
        assert self.instance.history.dataflow_count == len(self.stored)

    def exchange(self, names: Sequence[ReplicaId]) -> None:
        """Everything under way arrives, and is done."""
        for name in names:
            self.deliver(name, 10_000)
            self.work(name, 1_000_000)
            self.hear(name, 10_000)
            self.check()
        self.maintain()

    def complete(self, owner: str) -> int:
        stored = self.stored[owner]
        uppers = [self.shards[i.shard.shard_id].upper for i in stored.description.source_imports]
        return finished_tables.end(
            stored.description, min(uppers) if stored.reads is None else self.complete(stored.reads)
        )

    # --- the operator's part ---

    def _restore(self) -> None:
        for owner, stored in self.stored.items():
            if self.instance.dataflows.get(owner) is None:
                try:
                    self._install(owner, stored, first=False)
                except Waiting:
                    continue

    def _install(self, owner: str, stored: Stored, first: bool) -> None:
        description = stored.description
        for view in view_shards(description):
            self.book.register(view.shard_id, str(view.shard_id), LAG)
        sealed = finished_tables.is_sealed(self.instance, description, self.now)
        sinks = [f.upper for v in view_shards(description) if (f := self.book.frontiers(v.shard_id))]
        request = AsOfRequest(
            inputs=tuple(self.inputs(description)),
            sinks=tuple(upper for upper in sinks if upper > Frontier.minimum()),
            stored=None if first else description.as_of,
            running=tuple(running_sinces(description, self.descriptions.values())),
            until=description.until,
            sealed=sealed,
            unsure=not first and finished_tables.may_be_sealed(self.instance, description),
        )
        as_of = select_as_of(request)
        if first:
            description = replace(description, as_of=as_of)
            self.stored[owner] = Stored(description, stored.reads)
            self._hold_stored(owner, self.stored[owner])
        dataflow = Dataflow(owner, replace(description, as_of=as_of), LAG, stays=True, finished=sealed)
        self.instance.create(dataflow, WriterTerm(1))
        self.instance.dataflows.seed({id: f for id, f in self.reached.items() if id in description.export_ids})
        self.book.release(f"stored {owner}")

    def inputs(self, description: DataflowDescription) -> Iterator[Input]:
        for source in description.source_imports:
            yield Input(source.id, self.book.register(source.shard.shard_id, source.shard.location).readable)
        for imported in description.index_imports:
            index = self.instance.dataflows.index(imported.id)
            if index is None:
                raise Waiting("WaitingForInput", "the index is not there")
            yield Input(imported.id, FrontierPair(index.write or Frontier.minimum(), index.since))

    def _hold_stored(self, owner: str, stored: Stored) -> None:
        for view in view_shards(stored.description):
            self.book.register(view.shard_id, str(view.shard_id), LAG)
        for source in stored.description.source_imports:
            self.book.hold(source.shard.shard_id, f"stored {owner}", Frontier.minimum())

    def _collections(self) -> Iterator[Collection]:
        for owner in self.instance.dataflows.owners():
            yield from (c for c in self.instance.dataflows.collections_of(owner) if not c.dropped)

    def _known(self) -> list[object]:
        """The frontiers that are believed of collections and shards."""
        reported = [
            (c.id, c.write, r, on.write, on.input, on.output)
            for c in self._collections()
            for r, on in c.replicas.items()
        ]
        return [*reported, *((s.id, s.frontiers) for s in self.book.all())]

    def _remember_reached(self) -> None:
        """Read the frontiers as statuses do."""
        self.reached |= {c.id: c.write for c in self._collections() if c.write is not None}

    def take(self, notices: list[Notice]) -> None:
        for notice in notices:
            self.clients.take(notice)
            if isinstance(notice, PeekAnswer):
                self.questions.take(notice)
            if isinstance(notice, SuspectCleared):
                self.suspects.discard(notice.owner)

    def _standing(self, owner: str) -> HydrationStanding:
        return HydrationStanding.SUSPECT if owner in self.suspects else HydrationStanding.CLEAR
