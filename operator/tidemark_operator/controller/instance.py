"""One instance: its dataflows, sent to all of its replicas.

    create, drop, peek ──► history ──► link of every connected replica
    responses of a replica ──► collections, shards, peeks ──► notices

Synchronous, without clocks or I/O: connections drain the links, and callers pass the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace

from tidemark_operator.controller.answers.client_dataflows import ClientDataflows
from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.answers.peeks import PeekAnswer, PendingPeeks
from tidemark_operator.controller.answers.subscribes import ProtocolViolation
from tidemark_operator.controller.controller_events import (
    QUIET,
    DataflowChanged,
    DataflowGone,
    IngestionReported,
    Notice,
    ShardRemoved,
)
from tidemark_operator.controller.frontiers.dataflows import Dataflow, Dataflows
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.hydration.hydration_gate import HydrationGate
from tidemark_operator.controller.hydration.hydration_history import LOST, MOST, Hydration
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy
from tidemark_operator.controller.ingestion_registry import IngestionRegistry
from tidemark_operator.controller.peek_validation import hold, why_too_old, why_unreadable
from tidemark_operator.controller.replicas.disconnected_replicas import BARE, DisconnectedReplicas
from tidemark_operator.controller.replicas.excluded_dataflows import ExcludedDataflows
from tidemark_operator.controller.replicas.replica_link import ReplicaLink
from tidemark_operator.controller.replicas.shard_reports import ShardReports
from tidemark_operator.controller.reports.replica_problems import ReplicaProblems
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import INSTANCE, GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.command_history import History
from tidemark_protocol.messages.commands import CancelPeek, Command, InitializationComplete, Peek, RunIngestion
from tidemark_protocol.messages.responses import (
    CopyToResponse,
    Description,
    Failure,
    Frontiers,
    IngestionStatus,
    PeekError,
    PeekResponse,
    Response,
    ShardDeleted,
    ShardFrontiers,
    Status,
    SubscribeResponse,
)
from tidemark_protocol.plan.plan_features import required_features


class Instance:
    """The controller of one ComputeInstance. Times are milliseconds since the epoch."""

    def __init__(self, shards: ShardBook, hydration_policy: HydrationPolicy | None = None, storage: str = "") -> None:
        """`shards`: those of the namespace; `storage`: the URI prefix that the instance's replicas can reach."""
        self.shards, self.hydration_policy, self._storage = shards, hydration_policy or HydrationPolicy(), storage
        self.dataflows = Dataflows(shards)
        self.disconnected, self.excluded = (
            DisconnectedReplicas(self.dataflows, shards),
            ExcludedDataflows(self.dataflows),
        )
        self.shard_reports = ShardReports(self.dataflows, shards)
        self.history = History()
        self._links: dict[ReplicaId, ReplicaLink] = {}
        self.hydrations: deque[tuple[ReplicaId, Hydration]] = deque(maxlen=MOST)
        self.ingestions = IngestionRegistry(shards, self.send_to)
        self.peeks, self.replica_problems = PendingPeeks(), ReplicaProblems()
        self._transients, self._initialized = ClientDataflows(), False

    @property
    def replicas(self) -> list[ReplicaId]:
        """Connected replicas, in order of name."""
        return sorted(self._links)

    @property
    def links(self) -> list[ReplicaLink]:
        """The links of connected replicas."""
        return list(self._links.values())

    def has_news(self, replica: ReplicaId) -> bool:
        """Whether the replica's connection has something to send, or must end."""
        link = self._links.get(replica)
        return link is None or link.queued > 0

    def create(self, dataflow: Dataflow, term: WriterTerm) -> None:
        """Install a dataflow. The sinces of its inputs must be at or before its as_of."""
        created = self.dataflows.create(dataflow, term, self.replicas)
        self.disconnected.created(dataflow.owner)
        self._transients.add(dataflow.description, dataflow.target)
        for replica, link in self._links.items():
            link.exclude(self.excluded.ids(replica, [dataflow.owner]))
        self.broadcast(created)
        self.broadcast(self.dataflows.schedule())

    def drop(
        self, owner: str, over: Iterable[ShardId] = (), cause: str = "the dataflow that it reads was dropped"
    ) -> list[Notice]:
        """Drop a dataflow, and before it the client dataflows that import its indexes: a replica that connects later
        could not create them. `over`: its tables that no dataflow will write again; `cause`: for the clients'
        messages."""
        news = self._end(self.dataflows.visitors(owner, over), EndMessage(cause, self.dataflows.successor_since(owner)))
        self.broadcast(self.dataflows.drop(owner))
        return [*news, *self._reap()]

    def end_readers(self, over: Iterable[ShardId], ending: EndMessage) -> list[Notice]:
        """End subscribes that read these tables, which no dataflow will write again."""
        return [*news, *self._reap()] if (news := self._end(self.dataflows.visitors(None, over), ending)) else []

    def _end(self, visitors: Iterable[Dataflow], ending: EndMessage) -> list[Notice]:
        news: list[Notice] = []
        for visitor in visitors:
            news += self._transients.fail(visitor.description, ending)
            self.broadcast(self.dataflows.drop(visitor.owner))
        return news

    def take_over(self, owner: str, term: WriterTerm) -> None:
        """Let a dataflow write what its predecessor wrote, under this term."""
        self.broadcast(self.dataflows.take_over(owner, term))

    def initialized(self) -> None:
        """All stored revisions are installed, or wait: replicas may reconcile, and drop what they were not sent."""
        if not self._initialized:
            self._initialized = True
            self.broadcast([InitializationComplete()])

    def connect(
        self, replica: ReplicaId, connection: int, now_ms: int, hydrating: Collection[str] = (), has: Description = BARE
    ) -> list[Notice]:
        """A connection begins: queue what the replica must know. `hydrating`: owners that its process was already
        told to hydrate; `has`: its description."""
        self.initialized()
        notices = self.disconnect(replica)
        compacted, begins = self.disconnected.described(has, now_ms)
        self.broadcast(compacted)
        known = [id for dataflow in has.dataflows for id in dataflow.export_ids]

        def record(hydration: Hydration) -> None:
            self.hydrations.append((replica, hydration))

        policy, owner_of = self.hydration_policy, self.dataflows.owner_of
        gate = HydrationGate(policy, owner_of, hydrating, self._is_resource, known, record)
        link = self._links[replica] = ReplicaLink(connection, gate)
        self.disconnected.connected(replica, begins)
        self.excluded.described(replica, has, now_ms)
        link.exclude(self.excluded.ids(replica, self.dataflows.owners()))
        *commands, complete = self.history.replay(begins)
        self.peeks.connected(replica, (c for c in commands if not link.excludes(c)))
        runs = (run for run in self.ingestions.replay(replica, now_ms) if not self._missing(replica, run))
        link.send([*commands, *runs, complete])
        return notices

    def _missing(self, replica: ReplicaId, run: RunIngestion) -> frozenset[str]:
        """Plan features that the replica must know to decode the command, and does not know."""
        return self.excluded.missing(replica, required_features(run.ingestion))

    def occupants(self, replica: ReplicaId) -> tuple[str, ...] | None:
        """Owners in the replica's hydration slots; None where it is not connected."""
        return link.gate.occupants if (link := self._links.get(replica)) else None

    def hydrating(self) -> list[tuple[ReplicaId, Hydration]]:
        """The hydrations under way, by replica."""
        return [(replica, each) for replica in self.replicas for each in self._links[replica].gate.hydrating]

    def recorded(self, replica: ReplicaId, owners: Collection[str]) -> None:
        """The hydration slots of these owners are recorded in the ComputeReplica's status."""
        if link := self._links.get(replica):
            link.recorded(owners)

    def disconnect(self, replica: ReplicaId, lost_ms: int | None = None) -> list[Notice]:
        """A connection ended. `lost_ms`: when it was lost; None where the replica was removed."""
        if (link := self._links.pop(replica, None)) is not None:
            lost = (replace(each, ended_ms=self.hydration_policy.clock(), outcome=LOST) for each in link.gate.hydrating)
            self.hydrations.extend((replica, each) for each in lost)
        self.replica_problems.forget(replica)
        self.excluded.forget(replica)
        self.disconnected.forget(replica) if lost_ms is None else self.disconnected.mark_lost(replica, lost_ms)
        self.peeks.disconnected(replica)
        return [*self._transients.disconnected(replica, self._recipients), *self._reap()]

    def link(self, replica: ReplicaId, connection: int) -> ReplicaLink | None:
        """The link, if this is still the replica's connection."""
        link = self._links.get(replica)
        return link if link is not None and link.connection == connection else None

    def receive(self, replica: ReplicaId, connection: int, response: Response, now_ms: int) -> list[Notice]:
        """Take a response. A response of an older connection, or of one that must end, is discarded."""
        link = self.link(replica, connection)
        if link is None or link.refused is not None:
            return []
        link.observe(response)
        return [*link.news(replica), *self._take(replica, response, now_ms)]

    def _take(self, replica: ReplicaId, response: Response, now_ms: int) -> list[Notice]:
        match response:
            case Frontiers():
                return [] if self._transients.has(response.id) else self._frontiers(replica, response, now_ms)
            case SubscribeResponse() | CopyToResponse():
                return self._transient(replica, response, now_ms)
            case PeekResponse():
                return self._answer(replica, response, now_ms)
            case Failure():
                return self._failure(replica, response)
            case Status(id, kind, fields):
                return self._status(replica, id, kind, fields, now_ms)
            case ShardFrontiers():
                return self.shard_reports.reported(response)
            case IngestionStatus():
                self.ingestions.record(replica, response, now_ms)
                return [IngestionReported(replica, response)]
            case ShardDeleted():
                return [ShardRemoved(replica, response)]
            case _:
                return []

    def peek(self, peek: Peek, target: ReplicaId | None = None) -> list[Notice]:
        """Send a peek to all replicas, or to the target. The read hold is taken first. A peek of an index that was
        dropped or compacted meanwhile is answered here: no command may name what replicas have forgotten."""
        if target is not None and target not in self._links:
            return [
                PeekAnswer(
                    peek.uuid,
                    PeekError(f"replica {target} was asked to answer and is not connected: ask another one"),
                )
            ]
        if why := why_unreadable(peek, self.dataflows) or why_too_old(peek, self.dataflows, target):
            return [PeekAnswer(peek.uuid, PeekError(why))]
        hold(peek, Frontier.at(peek.timestamp), self.dataflows, self.shards)
        recipients = [replica for replica, link in self._links.items() if not link.excludes(peek)]
        self.peeks.add(peek, recipients if target is None else {target} & {*recipients}, target)
        if target is None:
            self.broadcast([peek])
        else:
            self.send_to(target, peek)
        return []

    def cancel_peek(self, uuid: str) -> None:
        """End a peek: CancelPeek goes to all replicas that have not answered, and only then the hold ends. Of a
        stashed answer, its keeper is told."""
        pending, cancel = self.peeks.remove(uuid), CancelPeek(uuid)
        if pending is None:
            if keeper := self.peeks.let_go(uuid):
                self.send_to(keeper, cancel)
            return
        self.history.push(cancel)
        for replica in pending.replicas:
            self.send_to(replica, cancel)
        hold(pending.peek, Frontier.empty(), self.dataflows, self.shards)

    def send_to(self, replica: ReplicaId, command: Command) -> bool:
        """Send a command to one replica; return whether it is connected."""
        if (link := self._links.get(replica)) is not None:
            link.send([command])
        return link is not None

    def maintain(self, now_ms: int) -> list[Notice]:
        """Schedule, compact and forget; called once a second."""
        news: list[Notice] = []
        for finished in self.dataflows.concluded(now_ms):
            if finished.shard is not None:
                news += self.shard_reports.view_advanced(finished.shard, finished.write)
        news += [DataflowChanged(owner) for owner in self.dataflows.end_attribution.outrun()]
        self.dataflows.compare(now_ms)  # where no frontier moves, no report renews that it is level
        self.broadcast(self.dataflows.schedule())
        self.disconnected.maintain(now_ms)
        for replica, link in self._links.items():
            link.admit(now_ms)
            news += link.news(replica)
            if why := self.disconnected.out_of_reach(replica):
                link.refuse(why)
        self.broadcast(self.dataflows.compact(now_ms))
        self.ingestions.maintain()
        if self._links:
            for command in self.shards.due_compactions(now_ms, self._storage):
                shard = self.shards.get(command.id)
                turn = shard.asks if shard is not None else 0  # in turn: one replica may not reach the store
                self.send_to(self.replicas[turn % len(self._links)], command)
        return [*news, *self._tell(self.peeks.overdue(now_ms, self.dataflows.is_answered)), *self._reap()]

    def broadcast(self, commands: Iterable[Command]) -> None:
        """Send commands to all replicas, also to those that connect later."""
        for command in commands:
            self.history.push(command)
            for link in self._links.values():
                link.send([command])

    def _reap(self) -> list[Notice]:
        answers = self._tell(self.peeks.unanswerable(lambda peek: why_unreadable(peek, self.dataflows) is None))
        if gone := self.dataflows.reap():
            self._transients.prune(lambda id: self.dataflows.collection(id) is not None)
        return [*answers, *(DataflowGone(owner) for owner in gone)]

    def _tell(self, answers: list[PeekAnswer]) -> list[PeekAnswer]:
        """Cancel the peeks that are answered now."""
        for answer in answers:
            self.cancel_peek(answer.uuid)
        return answers

    def _recipients(self, id: GlobalId) -> list[ReplicaId]:
        """Connected replicas that were sent the export."""
        return [replica for replica, link in self._links.items() if link.includes(id)]

    def _is_resource(self, id: GlobalId) -> bool:
        dataflow = self.dataflows.get(self.dataflows.owner_of(id))
        return dataflow is not None and dataflow.stays

    def _transient(self, replica: ReplicaId, response: SubscribeResponse | CopyToResponse, now_ms: int) -> list[Notice]:
        collection = self.dataflows.collection(response.id)
        dropped = collection is None or collection.dropped
        try:
            heard = self._transients.hear(replica, response, self._recipients, dropped=dropped)
        except ProtocolViolation as error:
            self._links[replica].refuse(str(error))
            return []
        if heard is None:
            return []
        report, news = heard
        return [*news, *self._frontiers(replica, report, now_ms)]

    def _frontiers(self, replica: ReplicaId, report: Frontiers, now_ms: int) -> list[Notice]:
        collection = self.dataflows.collection(report.id)
        if collection is None:
            return []
        was_hydrated = collection.hydrated
        collection.observe(replica, report)
        if collection.claimed_end:
            self.dataflows.conclude(collection, now_ms)
        shard = collection.shard
        notices = [] if shard is None else self.shard_reports.view_advanced(shard, collection.write)
        if collection.dropped:
            return notices + self._reap()
        self.dataflows.compare(now_ms)
        return [*notices, DataflowChanged(collection.owner)] if collection.hydrated and not was_hydrated else notices

    def _status(self, replica: ReplicaId, id: GlobalId, kind: str, fields: dict[str, str], now_ms: int) -> list[Notice]:
        if id == INSTANCE:
            self.replica_problems.record(replica, kind, fields)
            return []
        collection = self.dataflows.collection(id)
        state = collection.replicas.get(replica) if collection else None
        if collection is None or state is None or state.missing_features or state.statuses.get(kind) == fields:
            return []
        state.statuses[kind] = dict(fields)
        if kind == "operators":
            state.take_costs(now_ms)
        return [] if kind in QUIET else [DataflowChanged(collection.owner)]

    def _failure(self, replica: ReplicaId, failure: Failure) -> list[Notice]:
        collection = self.dataflows.collection(failure.id)
        state = collection.replicas.get(replica) if collection else None
        if collection is None or state is None or state.missing_features:
            return []
        if state.failures.get(failure.kind) == failure:
            return []
        state.failures[failure.kind] = failure
        return [DataflowChanged(collection.owner)]

    def _answer(self, replica: ReplicaId, response: PeekResponse, now_ms: int) -> list[Notice]:
        if (answer := self.peeks.first_answer(replica, response, now_ms)) is None:
            return []
        self.cancel_peek(response.uuid)
        return [answer]
