"""A source whose address the operator does not allow: no replica hears of it, pinned or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.handlers.harness import READABLE, OperatorHarness
from tests.resources.manifests import body
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.resources.addresses import connections
from tidemark_operator.resources.addresses.address import Address, address
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    FilesSource,
    IngestionDescription,
    PostgresSource,
    SourceSpec,
    TpchSource,
)
from tidemark_protocol.plan.kafka import KafkaSource

PINNED = IngestionDescription(GlobalId("u-s"), "s", TpchSource("1", 1, 2), 1000, ShardId("r"), "/data/r", ())


class Stored:
    """An API server on which this is stored of a source."""

    def __init__(self, pinned: IngestionDescription | None) -> None:
        self._pinned = pinned

    async def all(self, *_: object) -> dict[int, IngestionDescription]:
        return {} if self._pinned is None else {1: self._pinned}


def of_two_servers(source: SourceSpec) -> Iterator[Address]:
    """The addresses of a kind with servers: the seed is the last number of the address."""
    assert isinstance(source, TpchSource)
    yield address("10.0.0.1", 5432)
    yield address(f"10.0.0.{source.seed}", 5432)


@pytest.mark.parametrize(
    ("seed", "pinned", "names"),
    [(3, None, "10.0.0.3:5432"), (1, PINNED, "10.0.0.2:5432")],
    ids=["as it is written", "as it was pinned"],
)
def test_no_replica_is_sent_an_address_that_is_not_allowed(
    monkeypatch: pytest.MonkeyPatch, seed: int, pinned: IngestionDescription | None, names: str
) -> None:
    """Neither for an inspection nor to ingest, also where an earlier operator allowed it and pinned its tables."""
    monkeypatch.setattr(connections, "addresses_of", of_two_servers)

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(READABLE, {"instance": "default"})
        harness.context.registry.allowed_hosts = AllowedHosts.parse(["10.0.0.1:5432"])
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True
        spec = {"instance": "default", "loadGenerator": {"tpch": {"seed": seed}}}
        written = body("DataSource", spec, "s", uid="u-s", creationTimestamp="2026-01-01T00:00:00Z")
        written["status"] = {"ingester": {"replica": "r1", "writerTerm": 1}}
        key = key_of(DATA_SOURCES, written)
        harness.cache.put(key, written)
        reconciler = DataSourceReconciler(harness.context, cast(Any, None), cast(Any, None), lambda _: None)
        harness.context.revisions = cast(Any, Stored(pinned))

        again = await reconciler.reconcile(key, written)
        reconciler.resume(running)
        status = status_of(harness.context, key, written, 0)
        await harness.fleet.close()

        assert again is None
        assert not running.is_ingesting(GlobalId("u-s"))
        assert status is not None
        (ingesting,) = [each for each in status["conditions"] if each["type"] == "Ingesting"]
        assert ingesting["reason"] == "AddressNotAllowed"
        assert f"--source-hosts={names} " in ingesting["message"]

    asyncio.run(scenario())


POSTGRES = PostgresSource("db.shop.svc", 5432, "shop", "orders-db", "p", ())
KAFKA = KafkaSource(("k-0.kafka.svc:9093", "k-1.kafka.svc:9092"), ())


@pytest.mark.parametrize(
    ("source", "patterns", "refused"),
    [
        (POSTGRES, ["*.shop.svc:5432"], None),
        (POSTGRES, ["db.shop.svc:5433"], "db.shop.svc:5432"),
        (replace(POSTGRES, host="DB.shop.svc."), ["db.shop.svc"], None),
        (replace(POSTGRES, host="db.shop.svc,other"), ["*", "db.shop.svc"], "cannot be checked"),
        (replace(POSTGRES, host="/var/run/postgresql"), ["*"], "cannot be checked"),
        (replace(POSTGRES, host="127.0.0.1"), ["*"], "127.0.0.1:5432"),
        (KAFKA, ["*.kafka.svc:9092-9093"], None),
        (KAFKA, ["*.kafka.svc:9093"], "k-1.kafka.svc:9092"),
        (KAFKA, ["k-1.kafka.svc"], "k-0.kafka.svc:9093"),
        (replace(KAFKA, brokers=("PLAINTEXT://k-0.kafka.svc:9093",)), ["*"], "cannot be checked"),
        (replace(KAFKA, brokers=("[::1]:9092",)), ["*"], "[::1]:9092"),
        (FilesSource((), "keys", "https://Store.lake."), ["store.lake:443"], None),
        (DeltaSource((), "keys", "http://store.lake"), ["store.lake:443"], "store.lake:80"),
        (DeltaSource((), "keys", "http://store.lake@10.0.0.1"), ["*"], "cannot be checked"),
        (replace(KAFKA, registry="https://r.kafka.svc/apis"), ["*.kafka.svc:9092-9093"], "r.kafka.svc:443"),
        (replace(KAFKA, registry="http://r.kafka.svc:8081"), ["*.kafka.svc"], None),
        (replace(KAFKA, registry="http://me:secret@r.kafka.svc"), ["*"], "cannot be checked"),
    ],
)
def test_every_server_of_a_source_is_checked(source: SourceSpec, patterns: list[str], refused: str | None) -> None:
    """All brokers, not the first alone."""
    text = connections.refusal(source, AllowedHosts.parse(patterns))

    assert (text == "") == (refused is None)
    assert (refused or "") in text


def test_sources_of_files_and_generators_connect_nowhere() -> None:
    """An empty list stops none of them."""
    for source in (TpchSource("1", 1, 1), FilesSource(()), DeltaSource((), "keys")):
        assert connections.refusal(source, AllowedHosts()) == ""


def test_the_brokers_of_a_topic_are_addresses() -> None:
    source = KafkaSource(("kafka-0.shop.svc:9092", "kafka-1.shop.svc:9093"), ())
    assert list(connections.addresses_of(source)) == [
        address("kafka-0.shop.svc", 9092),
        address("kafka-1.shop.svc", 9093),
    ]
