"""One instance at run time: hosts its replicas' connections around the pure controller.

    connection ──described──► seed frontiers, install what is stored ──► replay
    connection ──received───► Instance ──notices──► listener (work queue) and whoever waits for a peek

Everything here runs on the event loop and never waits, but for the few methods that ask a replica something.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import grpc

from tidemark_operator.certificates.channel_factory import PLAIN_CHANNELS, ChannelFactory
from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.controller_events import Notice, ShardAppeared
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.read_policy import MAX_AHEAD_MS
from tidemark_operator.controller.frontiers.shards import ShardBook, is_below
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy, HydrationStanding, SlotOccupants
from tidemark_operator.controller.instance import Instance
from tidemark_operator.controller.replicas.replica_connection import (
    DESCRIBE_SECONDS,
    INSPECT_SECONDS,
    ReplicaConnection,
    RpcCounters,
)
from tidemark_operator.errors import OperatorError, Waiting
from tidemark_operator.fleet.clients.pending_queries import PendingQueries
from tidemark_operator.fleet.clients.pending_streams import PendingStreams
from tidemark_operator.fleet.clients.query_death_count import ClientWork, QueryDeathCount
from tidemark_operator.fleet.clients.status_meaning import is_hydrated
from tidemark_operator.fleet.clients.subscription import Backlog
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.instance_counters import InstanceCounters
from tidemark_operator.fleet.instance_facade import InstanceFacade
from tidemark_operator.fleet.lag_histogram import LagHistogram
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.orchestrator.interface import resource_of
from tidemark_protocol.ids import Epoch, GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import Command, FileRequest, InstanceConfig, RunIngestion, UpdateConfiguration
from tidemark_protocol.messages.responses import Description, Frontiers, Response
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import IngestionDescription, SourceSpec
from tidemark_protocol.plan.plan_features import required_features

LOG = logging.getLogger(__name__)
T = TypeVar("T")
DEFAULT_RESULT_BYTES = 1024 * 1024 * 1024
STASH_ABOVE_BYTES = 4 * 1024 * 1024
"""Larger answers stay at the replica, and are fetched while their readers take them."""
SILENT_SECONDS = 60.0
"""Clients wait for a lost replica for this time, in seconds."""


class InstanceListener(Protocol):
    """The operator's handlers, as an instance reports to them and asks them for standings."""

    def standing(self, instance: RunningInstance, owner: str) -> HydrationStanding:
        """Whether the dataflow that is installed for this owner may hydrate."""

    def greeted(self, instance: RunningInstance, replica: ReplicaId, incarnation: str) -> tuple[str, ...]:
        """A replica answers. Returns the owners that are recorded as hydrating in this very process."""

    def occupied(self, instance: RunningInstance, replica: ReplicaId) -> None:
        """The occupants of hydration slots changed: record `unrecorded`, then call `recorded`."""

    def restore(self, instance: RunningInstance, description: Description) -> None:
        """A replica is about to receive all dataflows: install those that are stored and not installed yet."""

    def replica_changed(self, instance: RunningInstance, replica: ReplicaId) -> None:
        """A replica came online, or was lost."""

    def notice(self, instance: RunningInstance, notice: Notice) -> None:
        """Something happened that no waiting client took."""

    async def outranked(self, by: int) -> None:
        """A replica serves a client of the higher term `by`; returns once our term is above it."""

    def connection_ended(self, instance: RunningInstance, replica: ReplicaId, task: asyncio.Task[None]) -> None:
        """The connection's task ended: it was cancelled, or failed in a way that no retry mends."""


class RunningInstance(InstanceFacade):
    """One ComputeInstance at run time, `namespace`/`name`. `config`: what its replicas receive as CreateInstance;
    `lag_ms`: its read policy in milliseconds, None before it was read. `publish_locations`: the places beside its
    storage below which its views may be published."""

    def __init__(
        self,
        namespace: str,
        config: InstanceConfig,
        shards: ShardBook,
        leadership: Leadership,
        listener: InstanceListener,
        backlog: Backlog | None = None,
        end_readers: Callable[[frozenset[ShardId], EndMessage], None] | None = None,
    ) -> None:
        """`backlog`: what waits for the subscribes of all instances; `end_readers`: ends subscribes on all instances
        of the namespace."""
        self.namespace, self.name, self.config = namespace, config.instance, config
        hydration_policy = HydrationPolicy(
            standing=lambda owner: listener.standing(self, owner),
            recorded=True,
            clock=now_ms,
        )
        super().__init__(Instance(shards, hydration_policy, config.storage_location))
        self.core.broadcast([UpdateConfiguration(DEFAULT_RESULT_BYTES, stash_above_bytes=STASH_ABOVE_BYTES)])
        self.max_result_bytes = DEFAULT_RESULT_BYTES
        self.lag_ms: int | None = None
        self.publish_locations: tuple[str, ...] = ()
        self._end_readers = end_readers or self.end_readers
        self._settings: dict[str, str] = {}
        self.replicas: dict[ReplicaId, ReplicaState] = {}
        self.lags, self.counts, self.traffic, self._deaths = (
            LagHistogram(),
            InstanceCounters(),
            RpcCounters(),
            QueryDeathCount(),
        )
        self._leadership, self._listener, self._connections = leadership, listener, 0
        self.clients, self.answers = PendingStreams(self, backlog or Backlog()), PendingQueries(self)
        self._answered_at = time.monotonic()
        self.in_vain: dict[str, int] = {}
        """The clients that wait for an index of a quarantined Dataflow (clients/quarantined_readers.py), or for a plan
        that the image of no replica can compute (clients/incompatible_readers.py), and since when."""

    @property
    def online(self) -> list[ReplicaId]:
        """Replicas that are connected, in order of name."""
        return sorted(r for r, state in self.replicas.items() if state.online)

    @property
    def silence(self) -> str:
        """The message to clients while no replica is online."""
        return f"no replica of ComputeInstance {self.name} answers (`kubectl describe computereplicas` says why)"

    @property
    def too_old(self) -> str:
        """The message to people where `is_too_old_for` holds."""
        return (
            f"the image of no connected replica of ComputeInstance {self.name} knows this kind of source, or the "
            "successors of its tables: upgrade it, so that one of them ingests"
        )

    def process_of(self, replica: str) -> ReplicaId | None:
        """The connected process of the ComputeReplica of this name, else its first one; the name itself where it has
        none, and None without a name. A ComputeReplica that is being resized has two processes."""
        if not replica:
            return None
        shapes = [id for id in self.replicas if replica in (id, resource_of(id)[0])]
        answering = [id for id in shapes if self.replicas[id].online]
        return next(iter([*answering, *shapes]), ReplicaId(replica))

    def configure(self, settings: Mapping[str, str], max_result_bytes: int) -> None:
        """Send changed settings to all replicas, also to those that connect later. `max_result_bytes`: of one
        answer."""
        changed = {name: value for name, value in settings.items() if self._settings.get(name) != value}
        most = None if max_result_bytes == self.max_result_bytes else max_result_bytes
        if changed or most is not None:
            self._settings |= changed
            self.max_result_bytes = max_result_bytes
            self.core.broadcast([UpdateConfiguration(most, changed)])
            self.flush()

    def attach(self, replica: ReplicaId, address: str, dialer: ChannelFactory = PLAIN_CHANNELS) -> None:
        """Keep a connection to the replica at this address."""
        state = self.replicas.get(replica)
        if state is not None and state.connection.reaches(address, dialer) and not state.task.done():
            return
        if state is None:
            self.core.disconnected.expect(replica, now_ms())
        self.detach(replica, lost_ms=now_ms())  # it may be the same process at another address
        connection = ReplicaConnection(replica, address, self, dialer)
        task = asyncio.create_task(connection.run(), name=f"replica {self.namespace}/{replica}")
        task.add_done_callback(lambda done: self._listener.connection_ended(self, replica, done))
        made = self.replicas[replica] = ReplicaState(connection, task, asyncio.Event())
        made.attached(state, now_ms())

    def detach(self, replica: ReplicaId, lost_ms: int | None = None) -> None:
        """Close the connection. `lost_ms`: when it was lost, where the replica may come back; None where it is
        removed."""
        if (state := self.replicas.pop(replica, None)) is not None:
            state.task.cancel()
            self._disconnect(replica, lost_ms)

    async def close(self) -> None:
        """Close all connections; the replicas keep running."""
        tasks = [state.task for state in self.replicas.values()]
        for replica in list(self.replicas):
            self.detach(replica)
        await asyncio.gather(*tasks, return_exceptions=True)

    def maintain(self) -> None:
        """Maintain the controller; called once a second."""
        now = now_ms()
        self.notify(self.core.maintain(now))
        if self.core.shards.needs_end_term_now:
            for replica in self.online:
                self.replicas[replica].connection.probe_now.set()
        self._give_up()
        self.lags.sample(((c.id, c.write) for c in self.core.dataflows.collections()), now)
        self.flush()

    def _give_up(self) -> None:
        """Fail peeks and copies once no replica has been online for `SILENT_SECONDS`: they take room that others
        could use. Subscribes continue when a replica is back."""
        now = time.monotonic()
        if self.online:
            self._answered_at = now
        elif now - self._answered_at > SILENT_SECONDS:
            why = f"the answer was lost while replicas computed it: {self.silence}"
            self.clients.give_up_copies(why)
            self.answers.give_up(why)

    def flush(self) -> None:
        """Wake connections that have commands to send, or must end; have changed hydration slots recorded."""
        for replica, state in self.replicas.items():
            if self.core.has_news(replica):
                state.wake.set()
            if self.unrecorded(replica) is not None:
                self._listener.occupied(self, replica)

    def unrecorded(self, replica: ReplicaId) -> SlotOccupants | None:
        """The occupants of the replica's slots where they differ from the record; None where they agree, or it is
        not connected."""
        state, owners = self.replicas.get(replica), self.core.occupants(replica)
        if state is None or state.description is None or owners is None or owners == state.recorded:
            return None
        return SlotOccupants(state.description.incarnation, owners)

    def recorded(self, replica: ReplicaId, occupied: SlotOccupants) -> None:
        """These occupants are recorded in the ComputeReplica's status."""
        state = self.replicas.get(replica)
        if state is None or state.description is None or state.description.incarnation != occupied.incarnation:
            return
        state.recorded = occupied.owners
        self.confirm(replica)

    def confirm(self, replica: ReplicaId) -> None:
        """The record stands: schedule the occupants that are in it."""
        if state := self.replicas.get(replica):
            self.core.recorded(replica, state.recorded)
            self.flush()

    async def describe(self, shards: Iterable[tuple[ShardId, str]]) -> tuple[ReplicaId, Description]:
        """Have any replica describe shards; returns that replica too. Raises: Waiting where none answers."""
        return await self._ask(lambda replica: replica.describe(shards), self.replicas)

    async def _ask(
        self, question: Callable[[ReplicaConnection], Awaitable[T]], among: Mapping[ReplicaId, ReplicaState]
    ) -> tuple[ReplicaId, T]:
        """Ask the online ones among these replicas, which may change meanwhile, one after the other, until one answers;
        return that one and its answer. Raises: Waiting where none does."""
        for replica in sorted(r for r, state in among.items() if state.online):
            try:
                return replica, await question(among[replica].connection)
            except (grpc.RpcError, OperatorError, KeyError) as error:
                LOG.warning("replica %s/%s did not answer: %s", self.namespace, replica, error)
        raise Waiting("NoReplicaOnline", f"waiting for a replica of ComputeInstance {self.name} to answer")

    async def inspect(
        self, source: SourceSpec, pinned: IngestionDescription | None = None
    ) -> compute_pb2.InspectSourceResponse:
        """Have any replica inspect a source. `pinned`: the source that its tables are added to, if they are. Raises:
        Waiting where none answers that knows this kind."""
        known = codec.encode(pinned) if pinned is not None else b""
        request = compute_pb2.InspectSourceRequest(source=codec.encode(source), ingestion=known)
        return await self._call(lambda stub: stub.InspectSource(request, timeout=INSPECT_SECONDS), self._able(source))

    async def _call(
        self, call: Callable[[Any], Awaitable[T]], replicas: Mapping[ReplicaId, ReplicaState] | None = None
    ) -> T:
        """The answer to a call of a stub, by the first of these replicas (None: of all) that gives one. Raises: Waiting
        where none answers."""
        return (await self._ask(lambda replica: replica.ask(call), self.replicas if replicas is None else replicas))[1]

    def _able(self, message: SourceSpec | IngestionDescription) -> dict[ReplicaId, ReplicaState]:
        """The replicas whose images know all that is in the message."""
        features = required_features(message)
        return {replica: state for replica, state in self.replicas.items() if state.understands(features)}

    def is_too_old_for(self, source: SourceSpec | IngestionDescription) -> bool:
        """Whether replicas are online, and the image of none of them knows this kind of source, and all in it."""
        features = required_features(source)
        return bool(self.online) and not any(self.replicas[each].understands(features) for each in self.online)

    async def release(self, ingester: ReplicaId, description: IngestionDescription) -> str:
        """Have a replica drop the replication slots of a deleted source: its ingester, if that is online, else any.
        Returns why it could not; empty if it did. Raises: Waiting where none answers that knows all in the source."""
        able = self._able(description)
        state = able.get(ingester)
        asked = {ingester: state} if state is not None and state.online else able
        request = compute_pb2.ReleaseSourceRequest(ingestion=codec.encode(description))
        answer = await self._call(lambda stub: stub.ReleaseSource(request, timeout=DESCRIBE_SECONDS), asked)
        return str(answer.error)

    async def list_shards(self, location: str, after: str, without: Iterable[str]) -> compute_pb2.ListShardsResponse:
        """Have any replica list shards and published tables below a location. Raises: Waiting where none answers."""
        request = compute_pb2.ListShardsRequest(
            location=location, after=after, without=without, published=True, elsewhere=True
        )
        return await self._call(lambda stub: stub.ListShards(request, timeout=DESCRIBE_SECONDS))

    def sees(self, location: str) -> bool:
        """Whether its replicas may have written a table at the location."""
        return any(is_below(place, location) for place in (self.config.storage_location, *self.publish_locations))

    def run_ingestion(
        self,
        replica: ReplicaId,
        description: IngestionDescription,
        term: WriterTerm,
        requests: tuple[FileRequest, ...] = (),
    ) -> None:
        """Make the replica the ingester of a source, under this term, with these requests about its files."""
        command = RunIngestion(description, term, Time(now_ms()), MAX_AHEAD_MS, requests)
        current = self.core.ingestions.get(description.id)
        if current is None or (current[0], replace(current[1], controller_now=command.controller_now)) != (
            replica,
            command,
        ):
            self.core.ingestions.run(replica, command)
            self.flush()

    def drop_ingestion(self, id: GlobalId) -> None:
        """Stop an ingestion."""
        self.core.ingestions.drop(id)
        self.flush()

    def drop(self, owner: str, over: Iterable[ShardId] = (), cause: str = "what it reads was dropped") -> None:
        """Drop a dataflow. `over`: its tables that no dataflow will write again, which other instances may read;
        `cause`: for the messages to clients."""
        tables, ending = frozenset(over), EndMessage(cause, self.core.dataflows.successor_since(owner))
        self.notify(self.core.drop(owner, tables, cause))
        self.flush()
        if tables:
            self._end_readers(tables, ending)

    def end_readers(self, over: Iterable[ShardId], ending: EndMessage) -> None:
        """End subscribes of this instance that read tables which no dataflow will write again."""
        self.notify(self.core.end_readers(over, ending))
        self.flush()

    def create_transient(self, dataflow: Dataflow) -> None:
        """Create a client's dataflow."""
        self.core.create(dataflow, WriterTerm(self._leadership.term))
        self.flush()

    def abandon(self) -> None:
        """End all clients: the instance is gone."""
        self.clients.abandon(f"ComputeInstance {self.name} was deleted")
        self.answers.abandon(f"ComputeInstance {self.name} was deleted while the query ran")

    # The methods of `ConnectionOwner`, which connections call.

    def shards_to_describe(self, pending: bool = False) -> list[tuple[ShardId, str]]:
        """Implements `ConnectionOwner`."""
        return self.core.shards.addresses(pending)

    async def epoch(self, replica: ReplicaId, served: Epoch | None) -> Epoch:
        """Implements `ConnectionOwner`. An instance that was made again under the same name continues the count of its
        replicas' connections."""
        if served is not None and served.leader_term > self._leadership.term:
            await self._listener.outranked(served.leader_term)
        if served is not None and served.leader_term == self._leadership.term:
            self._connections = max(self._connections, served.connection)
        self._connections += 1
        return Epoch(self._leadership.term, self._connections)

    def described(self, replica: ReplicaId, connection: int, description: Description) -> None:
        """Implements `ConnectionOwner`."""
        self.counts.connects += 1
        state = self.replicas[replica]
        state.greeted(description, now_ms())
        self.core.shard_reports.described(description.shards, now_ms())
        state.recorded = self._listener.greeted(self, replica, description.incarnation)
        self._listener.restore(self, description)
        self.notify(self.core.connect(replica, connection, now_ms(), state.recorded, description))
        self._listener.replica_changed(self, replica)
        self.flush()

    def take(self, replica: ReplicaId, connection: int) -> list[Command]:
        """Implements `ConnectionOwner`."""
        if (link := self.core.link(replica, connection)) is None:
            raise OperatorError(f"this is no longer the connection of replica {replica}")
        commands = link.drain()
        self.counts.commands.update(map(type, commands))
        return commands

    async def wait(self, replica: ReplicaId) -> None:
        """Implements `ConnectionOwner`."""
        state = self.replicas.get(replica)
        if state is None:
            raise OperatorError(f"replica {replica} was removed")
        await state.wake.wait()
        state.wake.clear()

    def received(self, replica: ReplicaId, connection: int, responses: Sequence[Response]) -> None:
        """Implements `ConnectionOwner`."""
        now = now_ms()
        self.counts.responses.update(map(type, responses))
        for response in responses:
            self.notify(self.core.receive(replica, connection, response, now))
        state = self.replicas.get(replica)
        if state is not None and state.unheard_since_ms and any(isinstance(r, Frontiers) for r in responses):
            state.mark_heard(now)
        if any(map(is_hydrated, responses)) and replica in self.replicas:
            self.replicas[replica].connection.probe_now.set()
        self.flush()
        link = self.core.link(replica, connection)
        if link is not None and link.refused is not None:
            raise OperatorError(link.refused)

    def probed(self, replica: ReplicaId, connection: int, description: Description) -> None:
        """Implements `ConnectionOwner`. Raises: OperatorError where another process answers than the one that was
        greeted, or where the replica takes no commands: a connection that waits to write asks for none."""
        state = self.replicas.get(replica)
        if state is None:
            return
        if link := self.core.link(replica, connection):
            link.check()
        if state.description is not None and state.description.incarnation != description.incarnation:
            raise OperatorError(
                f"another process answers at the address of replica {replica} than the one that was greeted"
            )
        state.description = description
        found = [shard for shard in description.shards if shard.exists]
        self.notify([ShardAppeared(id) for id in self.core.shard_reports.described(found, now_ms())])

    def connection_lost(self, replica: ReplicaId, connection: int, why: str) -> None:
        """Implements `ConnectionOwner`."""
        if self.core.link(replica, connection) is None:
            return
        LOG.warning("replica %s/%s: %s", self.namespace, replica, why)
        self._disconnect(replica, lost_ms=now_ms())
        self._answered_at = time.monotonic()
        if state := self.replicas.get(replica):
            state.mark_lost(why, now_ms())
        self._listener.replica_changed(self, replica)

    def died(self, replica: ReplicaId) -> bool:
        """The lost process had died, and another one answers, which has received nothing yet. Fails the work that
        killed enough processes; returns whether the dead one was computing something for a client."""
        died = self._deaths.died(replica, self._is_asked)
        for name in died.failed:
            LOG.warning("replica %s/%s died again while it computed %s, which fails now", self.namespace, replica, name)
            self.answers.fail(name, died.message)
            self.clients.fail(name, died.message)
        return died.computed

    def unreachable(self, replica: ReplicaId, why: str) -> None:
        """Implements `ConnectionOwner`."""
        state = self.replicas.get(replica)
        if state is not None and state.last_error != why:
            LOG.warning("replica %s/%s: %s", self.namespace, replica, why)
            state.last_error = why
            self._listener.replica_changed(self, replica)

    def client_work(self, replica: ReplicaId) -> ClientWork:
        """The client work that the replica is doing; work that waits for an index to hydrate does not count."""
        peeks, begun = self.core.peeks.peeks_of(replica), self.clients.beginning_owners(replica)
        uuids = [peek.uuid for peek in peeks if self.core.dataflows.is_answered(peek, replica)]
        return ClientWork([*uuids, *begun], bool(begun) or self.answers.compute(uuids))

    def _disconnect(self, replica: ReplicaId, lost_ms: int | None = None) -> None:
        if replica in self.core.replicas:
            self._deaths.connection_lost(replica, self.client_work(replica))
        self.notify(self.core.disconnect(replica, lost_ms))

    def _is_asked(self, name: str) -> bool:
        return self.answers.is_awaited(name) or self.clients.is_awaited(name)

    def notify(self, notices: list[Notice]) -> None:
        """Pass each notice to the client that waits for it, or else to the listener."""
        for notice in notices:
            if not self.clients.take(notice) and not self.answers.take(notice):
                self._listener.notice(self, notice)
