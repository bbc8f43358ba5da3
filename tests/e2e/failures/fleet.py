"""A controller with its real connections, on its own thread, for tests that harm its replicas.

It is the operator's own, without an API server: what would be stored as resources is given to it by the test.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pyarrow as pa

from tests.controller.recording_listener import Heard
from tests.replica.plans import COLUMNS, SCHEMA
from tests.replica.process import wait_until
from tests.waiting import BOUND
from tidemark_operator import metrics
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.controller_events import DataflowGone, IngestionReported
from tidemark_operator.controller.frontiers.collection import ExportOnReplica
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.frontiers.succession import Succession
from tidemark_operator.fleet.fleet import Fleet as Operators
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, Time, WriterTerm
from tidemark_protocol.messages.commands import Command, IndexTarget, InstanceConfig, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import Frontiers, PeekError, PeekRows, Response
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.ingestion import IngestionDescription
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT

LAG_MS = 5
MAINTAIN_SECONDS = 0.2
T = TypeVar("T")


class Overheard(RunningInstance):
    """An instance that also writes down the messages of replicas, before anything is made of it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.said: list[Response] = []

    def received(self, replica: ReplicaId, connection: int, responses: Sequence[Response]) -> None:
        self.said += responses
        super().received(replica, connection, responses)


class Fleet:
    """One instance under a leadership term of its own: replicas let go of what an earlier one told them."""

    def __init__(self, config: InstanceConfig, term: int) -> None:
        self._loop, self.heard = asyncio.new_event_loop(), Heard()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)
        self._thread.start()
        self.shards = ShardBook()
        leadership = Leadership(kube=None, namespace="ns", identity="test")  # type: ignore[arg-type]
        leadership.term = term
        self.instance = Overheard("ns", config, self.shards, leadership, self.heard)
        self._maintenance = self._begin(self._maintain())

    # --- what a test does ---

    def attach(self, name: str, address: str) -> None:
        self._do(lambda: self.instance.attach(ReplicaId(name), address))
        wait_until(lambda: name in self.online())

    def attach_only(self, name: str, address: str) -> None:
        """Without waiting for it to answer."""
        self._do(lambda: self.instance.attach(ReplicaId(name), address))

    def detach(self, name: str) -> None:
        """Nobody speaks to it any more; its process goes on."""
        self._do(lambda: self.instance.detach(ReplicaId(name)))

    def create(
        self, description: DataflowDescription, *read: ShardMetadata, succession: Succession | None = None
    ) -> None:
        """`succession`: it is to take over from another one."""

        def create() -> None:
            for shard in read:
                self.shards.register(shard.shard_id, shard.location, LAG_MS)
            for sink in description.sink_exports:
                shard = sink.sink.shard  # type: ignore[union-attr]
                self.shards.register(shard.shard_id, shard.location, LAG_MS)
            dataflow = Dataflow(description.name, description, LAG_MS, succession)
            self.instance.core.create(dataflow, WriterTerm(1))
            self.instance.flush()

        self._do(create)

    def take_over(self, name: str, old: str) -> None:
        """It may write, under a later term, and the old one goes: at one moment."""

        def take_over() -> None:
            self.instance.drop(old)
            self.instance.core.take_over(name, WriterTerm(2))
            self.instance.flush()

        self._do(take_over)

    def keep(self, shard: ShardMetadata, time: int) -> None:
        """The test reads the shard from then on, at whatever time it comes to it."""
        self._do(lambda: self.shards.hold(shard.shard_id, "test", Frontier.at(time)))

    def drop(self, name: str) -> None:
        self._do(lambda: self.instance.drop(name))

    def ask(
        self, id: GlobalId, time: int, target: str | None = None, keys: Iterable[int] | None = None
    ) -> Future[PeekRows | PeekError]:
        """A peek under way; of these keys alone, where some are named."""
        mfp = MapFilterProject(SCHEMA)
        literals = None if keys is None else tuple((Literal(str(key), BIGINT),) for key in keys)
        asked = Peek(uuid.uuid4().hex, IndexTarget(id), Time(time), mfp, Finishing(), COLUMNS, literals=literals)
        to = None if target is None else ReplicaId(target)
        return asyncio.run_coroutine_threadsafe(self.instance.answers.peek(asked, to), self._loop)

    def peek(self, id: GlobalId, time: int, target: str | None = None) -> list[tuple[Any, ...]]:
        """The rows, in order; fails where the answer is an error, or does not come."""
        answer = self.ask(id, time, target).result(BOUND)
        assert isinstance(answer, PeekRows), answer
        rows = pa.ipc.open_stream(answer.data).read_all().to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)

    def ingest(self, name: str, ingestion: IngestionDescription, term: int) -> None:
        """Have the replica ingest the source from now on, under the term."""

        def ingest() -> None:
            for table in ingestion.tables:
                self.shards.register(table.shard.shard_id, table.shard.location, LAG_MS)
            self.instance.run_ingestion(ReplicaId(name), ingestion, WriterTerm(term))

        self._do(ingest)

    # --- what it sees ---

    def online(self) -> list[str]:
        return self._do(lambda: [str(r) for r in self.instance.online])

    def write(self, id: GlobalId) -> int:
        """The furthest replica's."""
        collection = self._do(lambda: self.instance.core.dataflows.collection(id))
        return -1 if collection is None or collection.write is None else collection.write.encode()

    def on(self, id: GlobalId, name: str) -> ExportOnReplica | None:
        collection = self._do(lambda: self.instance.core.dataflows.collection(id))
        return None if collection is None else collection.replicas.get(ReplicaId(name))

    def reached(self, id: GlobalId, name: str) -> int:
        """The frontier that one replica has processed."""
        seen = self.on(id, name)
        return -1 if seen is None or seen.output is None else seen.output.encode()

    def said_of(self, id: GlobalId) -> list[Frontiers]:
        """All frontiers of it that replicas have reported, in order, whether somebody waits for them or not."""
        return self._do(lambda: [r for r in self.instance.said if isinstance(r, Frontiers) and r.id == id])

    def since(self, id: GlobalId) -> Frontier:
        collection = self._do(lambda: self.instance.core.dataflows.collection(id))
        assert collection is not None
        return collection.since

    def ingestion_said(self, name: str) -> list[str]:
        """The states and messages that a replica has reported of its ingestions."""
        heard = self._do(lambda: list(self.heard.notices))
        return [
            f"{n.status.state} {n.status.message}"
            for n in heard
            if isinstance(n, IngestionReported) and n.replica == name
        ]

    def upper(self, shard: ShardMetadata) -> int:
        """The upper of a shard, as far as the controller knows."""
        known = self._do(lambda: self.shards.frontiers(shard.shard_id))
        return -1 if known is None else known.upper.encode()

    def gone(self, name: str) -> bool:
        """Every replica has said that it is done with it."""
        return self._do(lambda: DataflowGone(name) in self.heard.notices)

    def replay(self) -> list[Command]:
        """The commands that a replica gets that joins now."""
        return self._do(lambda: list(self.instance.core.history.replay()))

    def serve_metrics(self) -> int:
        """Serve the operator's metrics of this instance. Returns the port."""
        all_of_them = SimpleNamespace(all=lambda: iter([self.instance]))
        return self._do(lambda: metrics.serve(lambda: metrics.metrics(cast(Operators, all_of_them), Registry()), 0))

    def close(self) -> None:
        """Replicas go on without it."""
        self._maintenance.cancel()
        self._begin(self.instance.close()).result(BOUND)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(MAINTAIN_SECONDS)
            self.instance.maintain()

    def _begin(self, work: Coroutine[Any, Any, None]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _do(self, act: Callable[[], T]) -> T:
        async def acted() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(acted(), self._loop).result(BOUND)
