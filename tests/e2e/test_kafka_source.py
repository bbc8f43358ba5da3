"""examples/kafka from kubectl apply to a view and a topic: each record once, also around the death of the replica."""

from __future__ import annotations

import json
import runpy
from decimal import Decimal
from typing import Any

import pytest
import yaml

from tests.avro.samples import written
from tests.e2e.system import CHECKOUT, System, wait_for
from tests.kafka.broker import Broker
from tests.kafka.topics import consumed, delete_topic, new_topic
from tests.kafka.topics import produce as change
from tests.schema_registry.registry import framed, registry

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

EXAMPLE = CHECKOUT / "examples" / "kafka"
SCHEMA = {"type": "record", "name": "State", "fields": [{"name": "id", "type": "long"}]}
NEWER_SCHEMA = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "state", "type": ["null", "string"]}]}


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


def spent(system: System) -> dict[str, tuple[int, Decimal]]:
    rows = system.query("SELECT customer, orders, spent FROM revenue")["rows"]
    return {row["customer"]: (row["orders"], Decimal(str(row["spent"]))) for row in rows}


def balances(system: System) -> list[tuple[str, Decimal]]:
    rows = system.query("SELECT name, balance FROM balances")["rows"]
    return [(row["name"], Decimal(str(row["balance"]))) for row in rows]


def written_to_topic(kafka: Broker) -> dict[str, tuple[int, Decimal]]:
    """The rows of the topic spent, by customer. No change of a row comes twice."""
    rows: dict[str, Any] = {}
    for record in consumed(kafka, "spent", 2):
        name, row = json.loads(record.key())["customer"], json.loads(record.value())
        assert rows.get(name) != row
        rows[name] = row
    return {name: (row["orders"], Decimal(row["spent"])) for name, row in rows.items()}


def example(kafka: Broker, name: str = "topic") -> dict[str, Any]:
    """Its documents by kind, ticking faster, with this broker."""
    text = (EXAMPLE / f"{name}.yaml").read_text().replace("127.0.0.1:9092", kafka.address)
    return {document["kind"]: document for document in yaml.safe_load_all(text.replace("tick: 1s", "tick: 200ms"))}


def test_avro_by_a_registry_is_read_by_the_schema_that_was_pinned(system: System, kafka: Broker) -> None:
    """The registry knows a newer version when the replica, and so the registry's client, begins anew."""
    topic = new_topic(kafka, name="states")
    with registry() as server:
        text = (EXAMPLE / "avro.yaml").read_text().replace("127.0.0.1:9092", kafka.address)
        text = text.replace("http://127.0.0.1:8081", server.url).replace("tick: 1s", "tick: 200ms")
        document = yaml.safe_load(text)
        first = server.register("states-value", SCHEMA)
        system.apply("DataSource", "shipments", document["spec"])
        system.wait_condition("datasource", "shipments", "Ready")
        change(kafka, topic, framed(first, written(SCHEMA, {"id": 1})))

        def rows() -> list[Any]:
            return sorted(system.query("SELECT * FROM shipments.states")["rows"], key=lambda row: int(row["id"]))

        wait_for("the first row", lambda: rows() == [{"id": 1}], system.log)
        second = server.register("states-value", NEWER_SCHEMA)
        system.kill_replica()
        change(kafka, topic, framed(second, written(NEWER_SCHEMA, {"id": 2, "state": "new"})))
        wait_for("both rows", lambda: rows() == [{"id": 1}, {"id": 2}], system.log)


def test_crash_records_reach_the_view_once_whoever_is_killed(system: System, kafka: Broker) -> None:
    """Orders, the replica killed with SIGKILL, more orders; then the topic is created anew."""
    new_topic(kafka, name="orders", partitions=2)
    produce = runpy.run_path(str(EXAMPLE / "orders.py"))["produce"]
    produce(kafka.address)
    for topic in ("customers", "shop.public.accounts"):
        new_topic(kafka, name=topic)
    runpy.run_path(str(EXAMPLE / "customers.py"))["produce"](kafka.address)
    for name in ("topic", "customers", "sink"):
        for kind, document in example(kafka, name).items():
            system.apply(kind, document["metadata"]["name"], document["spec"])
    system.wait_hydrated("revenue", "balances", "spent")
    wait_for("balances", lambda: balances(system) == [("eve", Decimal("12.50"))], system.log)
    expected = {name: (1, Decimal("10.25")) for name in ("ann", "bob", "eve")}
    wait_for("the first orders", lambda: spent(system) == expected, system.log)
    system.wait_condition("dataflow", "spent", "Delivered", "True", "Delivered")
    wait_for("the first orders in the topic", lambda: written_to_topic(kafka) == expected, system.log)

    pids = system.replica_pids()
    system.kill_replica()
    produce(kafka.address, 3)
    change(kafka, "customers", {"name": "ann"}, key=b'{"id":1}')
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    expected = {name: (2, Decimal("20.50")) for name in ("ann", "bob", "eve")}
    wait_for("all orders", lambda: spent(system) == expected, system.log)
    wait_for("all orders in the topic", lambda: written_to_topic(kafka) == expected, system.log)
    wait_for("a newer name", lambda: balances(system) == [("ann", Decimal("12.50"))], system.log)
    letters = "SELECT value, reason FROM broker.orders_dead_letter"
    wait_for("one dead letter of each call", lambda: len(system.query(letters)["rows"]) == 2, system.log)

    delete_topic(kafka, "orders")
    new_topic(kafka, name="orders")
    message = system.wait_condition("datasource", "broker", "Ingesting", "False", "TopicReplaced")
    assert "table orders:" in message
    assert spent(system) == expected
