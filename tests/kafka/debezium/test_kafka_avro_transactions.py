"""Debezium's transactions in Avro: the same histories as in JSON, with a registry that goes away."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.avro.samples import written
from tests.kafka.broker import Broker
from tests.kafka.debezium.avro_events import body, envelope, nullable
from tests.kafka.debezium.connector import SCHEMAS, pinned_row
from tests.kafka.debezium.test_kafka_transaction_histories import Killed, end_of_history, kill_after
from tests.kafka.debezium.test_kafka_transactions import NAMES, Shop, contents, end, joined, shown, soon
from tests.kafka.topics import Run, produce, upper
from tests.schema_registry.registry import Registry, framed, registry
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.kafka import KafkaSchema
from tidemark_replica.storage import schema_registry
from tidemark_replica.storage.kafka import source as kafka_source
from tidemark_replica.storage.kafka.transactions import log
from tidemark_replica.storage.kafka.transactions.avro_metadata import AvroMarks, Boundaries
from tidemark_replica.storage.kafka.transactions.metadata import Boundary, NotUnderstood, boundary_of, json_marks
from tidemark_replica.storage.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
__all__ = ["soon"]


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as one:
        yield one


def test_a_transaction_in_avro_is_at_one_time(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    """Across partitions and tables, and only after its end; also one within which the connector begins again."""
    shop = Shop(kafka, registry=server)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 2, "b"), ("items", 1, "c"), ("orders", 1, None))
        for _ in range(6):
            assert shop.connector.send(1)
            shop.tick(run, 2)
            assert shop.seen == 0
        assert shop.connector.send(1) == 1  # its end
        shop.until_last(run)
        assert oks(tmp_path, "orders") == [(2, "b")]
        shop.commit(*(("orders", n, "a") for n in range(5)), ("items", 1, "a"))
        shop.connector.send(4)
        shop.connector.restart(1, 2)
        while shop.connector.send(1):
            shop.tick(run)
        run.until(lambda: run.source.warning().startswith("TransactionUndecided: transaction 701 of topic"))
        assert shop.seen == 1
        end_of_history(shop)
        shop.until_last(run)


def test_the_registry_goes_away(
    kafka: Broker, tmp_path: Path, server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No table takes a transaction meanwhile, also in a process that knows no schema yet; nothing is lost."""
    monkeypatch.setattr(schema_registry, "PAUSE_SECONDS", 0.05)
    shop = Shop(kafka, registry=server)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("items", 1, "a"))
        shop.connector.send_all()
        shop.until_last(run)
    server.status = 503
    shop.commit(("orders", 1, "b"), ("items", 2, "b"))
    shop.connector.send_all()
    with Run(tmp_path, shop.spec(), 2) as run:
        run.until(lambda: "RegistryAway" in run.source.warning())
        shop.tick(run, 3)
        assert shop.seen == 1
        server.status = 0
        shop.until_last(run)
        assert not run.source.stop_reasons()


def test_events_that_cannot_be_read(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    """They are malformed, as in JSON; a connector of another database stops its table."""
    shop = Shop(kafka, registry=server)
    other = envelope(*SCHEMAS["value"]["fields"][0]["type"][1]["fields"], connector="mysql")
    id = server.register("mysql", other)
    with Run(tmp_path, shop.spec()) as run:
        joined(run)
        key = framed(server.subjects["key"][0], written(SCHEMAS["key"], {"id": 1}))
        produce(kafka, shop.connector.topic("orders"), b"{bad", key=key, partition=1)
        run.until(lambda: errors(tmp_path, "orders"))
        event = {"op": "c", "after": {"id": 1}, "source": {"connector": "mysql"}}
        produce(kafka, shop.connector.topic("items"), framed(id, body(other, event)), key=key, partition=1)
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons()["items"].startswith("OtherOrigin: table items: partition 1 of topic")
        produce(kafka, shop.connector.transaction_topic, framed(id, body(other, event)))
        run.until(lambda: run.source.warning().startswith("TransactionsUnreadable: RecordUnknown"))
        assert "no BEGIN or END: it has no field status" in run.source.warning()


def test_marks_and_boundaries_are_those_of_json(server: Registry) -> None:
    """The columns of a writer's rows are of no account; records of both kinds may be in one batch."""
    wider = envelope(nullable({"type": "map", "values": "long"}, "m"), nullable("string", "name"))
    schemas = [SCHEMAS["value"], wider]
    ids = [server.register("value", schema) for schema in schemas]
    source = {"connector": "postgresql", "schema": "public", "table": "t", "sequence": '["7","9"]'}
    block = {"id": "5:9", "total_order": 2, "data_collection_order": 1}
    events: list[Any] = [
        {"op": op, "source": source | more, "transaction": of}
        for op in "curdtm"
        for of in (block, None)
        for more in ({}, {"sequence": None}, {"connector": "mysql"}, {"table": "u"})
    ]
    in_avro = [framed(ids[i % 2], body(schemas[i % 2], event)) for i, event in enumerate(events)]
    in_json = [json.dumps(event).encode() for event in events]
    client = SchemaRegistry(server.url, None)
    found, expected = AvroMarks(client)([*in_avro, None, b"bad"]), json_marks([*in_json, None, b"bad"])
    assert list(map(repr, found)) == list(map(repr, expected))
    assert any(isinstance(each, NotUnderstood) for each in found)
    end_id = server.register("end", SCHEMAS["end"])
    ends = [end("7:9", orders=2, items=1), end("8:9") | {"status": "BEGIN"}, end("9")]
    both = [
        framed(end_id, written(SCHEMAS["end"], ends[0] | {"ts_ms": 3})),
        json.dumps(ends[1]).encode(),
        framed(end_id, written(SCHEMAS["end"], ends[1] | {"ts_ms": 3})),
        None,
        framed(end_id, written(SCHEMAS["end"], ends[2] | {"ts_ms": 3})),
        b"{",
    ]
    boundaries = Boundaries(client)(both)
    assert boundaries[:4] == [
        boundary_of(json.dumps(ends[0] | {"ts_ms": 3}).encode()),
        Boundary("8", 9, 0, None),
        Boundary("8", 9, 3, None),
        None,
    ]
    assert all(isinstance(each, NotUnderstood) for each in boundaries[4:])


def test_columns_come_with_a_schema(kafka: Broker, tmp_path: Path, server: Registry) -> None:
    shop = Shop(kafka, registry=server)
    spec = shop.spec("orders")
    with Run(tmp_path, spec) as run:
        joined(run)
        shop.commit(("orders", 1, "a"), ("orders", 2, "b"))
        shop.connector.send_all()
        shop.until_last(run)
    second = replace(spec.tables[0], name="orders.2", schema=KafkaSchema(pinned_row("name", "vip")), successor=True)
    with Run(tmp_path, replace(spec, tables=(*spec.tables, second)), 2) as run:
        run.until(lambda: upper(tmp_path, "orders.2"))
        assert oks(tmp_path, "orders.2") == [(1, "a", "va"), (2, "b", "vb")]
        shop.commit(("orders", 1, None), ("orders", 3, "c"))
        shop.connector.send_all()
        run.until(lambda: oks(tmp_path, "orders") == [(2, "b"), (3, "c")])
        assert oks(tmp_path, "orders.2") == [(2, "b", "vb"), (3, "c", "vc")]


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
def test_oracle_random_transactions_in_avro(
    kafka: Broker, tmp_path: Path, seed: int, server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The histories are those of JSON; and the registry is away for some ticks."""
    monkeypatch.setattr(schema_registry, "PAUSE_SECONDS", 0.05)
    draw = random.Random(seed)
    monkeypatch.setattr(log, "BEFORE_RECORDS", 200)
    if draw.random() < 0.5:
        monkeypatch.setattr(kafka_source, "AHEAD_BYTES", 3_000)
    shop = Shop(kafka, draw.randrange(1, 4), registry=server)
    spec, term = shop.spec(max_bytes_per_tick=draw.choice([2_000, 1 << 20])), 1
    run = Run(tmp_path, spec)
    joined(run)
    shop.some_join = True
    for _ in range(16):
        for _ in range(draw.randrange(4)):
            shop.upstream.commit_random(draw)
        shop.connector.queue(draw.randrange(1, 40))
        shop.connector.deliver_some(draw)
        server.status = draw.choice([0, 0, 503])
        if draw.random() < 0.25:
            shop.connector.restart_somewhere(draw)
        if draw.random() < 0.25:
            kill_after(run, draw.randrange(4))
        try:
            shop.tick(run, draw.randrange(3))
            died = draw.random() < 0.2
        except Killed:
            died = True
        if died:
            run.close()
            term += 1
            run = Run(tmp_path, spec, term)
            shop.check(run)
    run.close()
    server.status = 0
    run = Run(tmp_path, spec, term + 1)
    end_of_history(shop)
    shop.until_last(run)
    assert contents(tmp_path, NAMES) == shown(shop.upstream.states[-1], NAMES)
    run.close()
