"""The ingester of a DataSource: the choice, the statuses that count, and the notice of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import ONE, READABLE, OperatorHarness
from tests.protocol.samples import INGESTION
from tests.replica.plans import COLUMNS, transient
from tests.resources.manifests import body
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.handlers.reconcile.data_source import TAKEOVER_SECONDS, DataSourceReconciler, failure_of
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATA_SOURCES, REPLICAS, Body
from tidemark_operator.orchestrator.interface import Phase
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig, RunIngestion
from tidemark_protocol.messages.responses import Description, IngestionStatus
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan.dataflow import SourceImport, SubscribeSink
from tidemark_protocol.plan.ingestion import IntrospectionSource, PostgresSource, PostgresTable, SourceSpec
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES

KEY = Key(DATA_SOURCES, "ns", "s")
SPEC = {"instance": "default", "loadGenerator": {"tpch": {}}}
SOURCE = body("DataSource", SPEC, "s", uid=INGESTION.id, creationTimestamp="2026-01-01T00:00:00Z")
R1, R2 = ReplicaId("r1"), ReplicaId("r2")


class Stored:
    """The part of the status that is written."""

    async def store(self, *_: object) -> None: ...


def ingested(of: Callable[[OperatorHarness, SourceState, DataSourceReconciler], Any]) -> Any:
    """Replica r1 ingests the source; r2 is online too."""

    async def scenario() -> Any:
        harness = OperatorHarness()
        harness.put(READABLE, ONE)
        other = body("ComputeReplica", ONE, "r2", uid="u-r2", resourceVersion="100")
        harness.cache.put(key_of(REPLICAS, other), other)
        harness.put(READABLE, ONE)
        harness.cache.put(KEY, SOURCE)
        state = SourceState(KEY, INGESTION.id, "default", INGESTION, Ingester(R1, WriterTerm(1)))
        harness.context.registry.put_source(state)
        reconciler = DataSourceReconciler(harness.context, cast(Any, Stored()), deleter(harness), lambda _: None)
        running = harness.context.running("ns", "default")
        assert running is not None
        for replica in running.replicas.values():
            replica.online, replica.silent_since_ms = True, 0
        found = of(harness, state, reconciler)
        if asyncio.iscoroutine(found):
            found = await found
        await harness.fleet.close()
        return found

    return asyncio.run(scenario())


def test_statuses_of_an_earlier_ingester_are_ignored() -> None:
    """It was replaced, and finds that out when it is there again: after the new one has said that all is well."""

    def reports(_: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler) -> None:
        state.ingester = Ingester(R2, WriterTerm(2))
        running, fenced = (IngestionStatus(INGESTION.id, message, message) for message in ("running", "fenced"))
        assert reconciler.report(R2, running, "ns") == KEY
        assert reconciler.report(R1, fenced, "ns") is None
        assert (state.report, state.failure) == (running, None)

        assert reconciler.report(R2, fenced, "ns") == KEY
        assert state.failure is not None

    ingested(reports)


def test_a_replica_that_is_refused_ingests_no_more() -> None:
    """It was edited to what the orchestrator cannot run: it is there, and has no process."""

    async def refused(harness: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler) -> list[Ingester]:
        before = await ingester(state, reconciler)
        harness.orchestrator.refused = {"r1"}
        harness.put(READABLE, ONE)
        return [before, await ingester(state, reconciler)]

    async def ingester(state: SourceState, reconciler: DataSourceReconciler) -> Ingester:
        await reconciler.reconcile(KEY, SOURCE)
        assert state.ingester is not None
        return state.ingester

    assert ingested(refused) == [Ingester(R1, WriterTerm(1)), Ingester(R2, WriterTerm(2))]


def test_another_replica_takes_over_as_soon_as_the_ingester_has_ended() -> None:
    """A connection that is lost may come back at once; a process that ended does not. It stays where it went."""

    async def killed(harness: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler) -> list[Any]:
        running = harness.context.running("ns", "default")
        assert running is not None
        await reconciler.reconcile(KEY, SOURCE)
        running.replicas[R1].online, running.replicas[R1].silent_since_ms = False, now_ms()
        lost = await reconciler.reconcile(KEY, SOURCE), state.ingester
        harness.orchestrator.phases["u-r1"] = Phase.BACKING_OFF
        ended = await reconciler.reconcile(KEY, SOURCE), state.ingester
        running.replicas[R1].online = True
        return [lost, ended, (await reconciler.reconcile(KEY, SOURCE), state.ingester)]

    follower = Ingester(R2, WriterTerm(2))
    expected = [(TAKEOVER_SECONDS, Ingester(R1, WriterTerm(1))), (None, follower), (None, follower)]
    assert ingested(killed) == expected


DATABASE = {"host": "db", "database": "d", "secret": "s", "publication": "p", "tables": [{"name": "t", "table": "t"}]}
SUCCESSOR = PostgresTable("t.2", "public", "t", columns=COLUMNS, successor=True)


@pytest.mark.parametrize(
    ("spec", "pinned"),
    [
        ({"introspection": {"relations": ["errors"]}}, IntrospectionSource(())),
        ({"postgres": DATABASE}, PostgresSource("db", 5432, "d", "s", "p", (SUCCESSOR,))),
    ],
    ids=["a kind of source", "a successor of a table of PostgreSQL"],
)
def test_replicas_of_an_older_image_do_not_ingest_what_they_do_not_know(spec: Body, pinned: SourceSpec) -> None:
    """Such a command could not be decoded, and would end the replica's connection, again and again."""

    async def older(harness: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler) -> list[Any]:
        running = harness.context.running("ns", "default")
        assert running is not None
        assert state.pinned is not None
        whole = {"instance": "default", **spec}
        held = {"finalizers": [FINALIZER], "resourceVersion": "8"} if "postgres" in spec else {}
        source = body("DataSource", whole, "s", uid=INGESTION.id, creationTimestamp="2026-01-01T00:00:00Z", **held)
        harness.cache.put(KEY, source)
        harness.context.registry.allowed_hosts = AllowedHosts.parse(["db:5432"])
        state.pinned = replace(state.pinned, source=pinned, tables=())
        found = list[Any]()

        async def images(r1: tuple[str, ...], r2: tuple[str, ...]) -> None:
            for replica, words in ((R1, r1), (R2, r2)):
                has = Description("incarnation", None, 0, (), (), (), words)
                running.replicas[replica].description = has
                running.core.connect(replica, len(found), now_ms(), (), has)
            await reconciler.reconcile(KEY, source)
            sent = [
                replica
                for replica in (R1, R2)
                if (link := running.core.link(replica, len(found)))
                if any(isinstance(each, RunIngestion) for each in link.drain())
            ]
            found.append((state.ingester, sent, state.failure and state.failure.reason))

        state.ingester = Ingester(R1, WriterTerm(1))
        await images((), SUPPORTED_FEATURES)
        await images((), ())
        await images(SUPPORTED_FEATURES, SUPPORTED_FEATURES)
        return found

    first, none, both = ingested(older)
    assert first == (Ingester(R2, WriterTerm(2)), [R2], None)
    assert none == (Ingester(R2, WriterTerm(2)), [], "ImageTooOld")
    assert both == (Ingester(R2, WriterTerm(2)), [R2], None)


def test_replicas_of_an_older_image_get_no_successors() -> None:
    """The first table goes on; the condition says what is in the way."""

    async def older(harness: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler) -> list[Any]:
        tables = [{"name": "t", "table": "t", "columns": ["n", "m"]}]
        whole = {"instance": "default", "postgres": {**DATABASE, "tables": tables}}
        held = {"finalizers": [FINALIZER], "resourceVersion": "8"}
        source = body("DataSource", whole, "s", uid=INGESTION.id, creationTimestamp="2026-01-01T00:00:00Z", **held)
        harness.cache.put(KEY, source)
        harness.context.registry.allowed_hosts = AllowedHosts.parse(["db:5432"])
        first = PostgresTable("t", "public", "t", ("n",), columns=COLUMNS)
        state.pinned = replace(INGESTION, source=PostgresSource("db", 5432, "d", "s", "p", (first,)), tables=())
        await reconciler.reconcile(KEY, source)
        return [state.edit, state.failure]

    edit, failure = ingested(older)
    assert (edit.reason, failure) == ("ImageTooOld", None)
    assert "the successors of its tables: upgrade it" in edit.message


@pytest.mark.parametrize("knowing", [R1, R2])
def test_slots_are_released_by_a_replica_that_knows_the_successors_of_the_source(knowing: ReplicaId) -> None:
    """Also where the ingester, which is r1, has an older image by now."""

    async def released(harness: OperatorHarness, state: SourceState, _: DataSourceReconciler) -> list[Any]:
        running = harness.context.running("ns", "default")
        assert running is not None
        asked = list[ReplicaId]()
        for replica, each in running.replicas.items():
            words = SUPPORTED_FEATURES if replica == knowing else ()
            each.description = Description("incarnation", None, 0, (), (), (), words)
            connection = cast(Any, each.connection)
            connection.ask = partial(ask, asked, replica)
        source = replace(INGESTION, source=PostgresSource("db", 5432, "d", "s", "p", (SUCCESSOR,)))
        assert await running.release(R1, source) == ""
        return asked

    async def ask(asked: list[ReplicaId], replica: ReplicaId, _: object) -> compute_pb2.ReleaseSourceResponse:
        asked.append(replica)
        return compute_pb2.ReleaseSourceResponse()

    assert ingested(released) == [knowing]


@pytest.mark.parametrize(
    ("state", "message", "reason"),
    [
        ("running", "", None),
        ("running", "2 file(s) changed after they were read", None),
        ("waiting", "starting", None),
        ("waiting", "ClockSkew: this replica's tick is past the bound", "ClockSkew"),
        ("failed", "OSError: no such directory", "OSError"),
        ("failed", "no such directory", "IngestionFailed"),
        ("fenced", "shard has term 4", "IngestionFenced"),
        ("failed", f"{'X' * 500}: a name without end", "IngestionFailed"),
        ("not well, says a lying replica", "x", "IngestionFailed"),
    ],
)
def test_why_an_ingestion_does_not_run(state: str, message: str, reason: str | None) -> None:
    """The replica's first word is the reason where it is one to the API server too: a status with another would be
    refused whole."""
    failure = failure_of(IngestionStatus(INGESTION.id, state, message))

    assert (failure.reason if failure else None) == reason


def test_bindings_stay_without_an_ingester() -> None:
    """Whoever does next gives its tables what they lack of them: also under an operator that began meanwhile."""

    async def held(
        harness: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler
    ) -> list[Frontier | None]:
        found = list[Frontier | None]()
        for suspend in (True, False):
            await reconciler.reconcile(KEY, {**SOURCE, "spec": {**SPEC, "suspend": suspend}})
            book = harness.fleet.book("ns")
            for id in (INGESTION.remap_id, INGESTION.tables[0].shard.shard_id):
                book.observe(id, Frontier.at(500_000), Frontier.at(0))
            cast(Any, harness.context.running("ns", "default")).core.ingestions.maintain()
            bindings = book.get(INGESTION.remap_id)
            assert bindings is not None
            found.append(bindings.allowed_since(500_000))
        return found

    assert ingested(held) == [Frontier.minimum(), Frontier.at(500_000 - 60_000)]


@pytest.mark.parametrize("instance", ["default", "another"])
def test_readers_of_a_deleted_source_learn_of_it(instance: str) -> None:
    """Nothing will ever change there, on whatever instance it is read; who reads another table is not concerned."""

    def ended_reader(
        harness: OperatorHarness, state: SourceState, reconciler: DataSourceReconciler
    ) -> tuple[str, list[str]]:
        harness.fleet.ensure("ns", InstanceConfig("another", "/elsewhere"))
        running = harness.context.running("ns", instance)
        assert running is not None
        (table,) = INGESTION.tables
        other = replace(table.shard, shard_id=ShardId("other"))
        for name, shard in (("s", table.shard), ("o", other)):
            running.core.shards.register(shard.shard_id, shard.location)
            running.core.shards.observe(shard.shard_id, Frontier.at(500), Frontier.at(0))
            read = SourceImport(GlobalId("t"), shard, (0,))
            description = replace(transient(name, SubscribeSink(COLUMNS)), as_of=Time(300), source_imports=(read,))
            running.core.create(Dataflow(name, description, 1), WriterTerm(1))
        notices = list[Notice]()
        cast(Any, running).notify = notices.extend
        reconciler.forget(KEY)
        (ended,) = (notice for notice in notices if isinstance(notice, SubscribeAdvanced))
        return str(ended.batch.error), running.core.dataflows.owners()

    error, left = ingested(ended_reader)
    assert error == "DataSource s was deleted. No change had been sent yet"
    assert left == ["o"]
