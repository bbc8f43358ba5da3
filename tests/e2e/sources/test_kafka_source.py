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
from tests.kafka.debezium.test_kafka_transactions import Shop
from tests.kafka.topics import consumed, delete_records, delete_topic, new_topic
from tests.kafka.topics import produce as change
from tests.schema_registry.registry import framed, registry

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

EXAMPLE = CHECKOUT / "examples" / "kafka"
SCHEMA = {"type": "record", "name": "State", "fields": [{"name": "id", "type": "long"}]}
NEWER_SCHEMA = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "state", "type": ["null", "string"]}]}
READABLE_SCHEMA = {**SCHEMA, "fields": [*SCHEMA["fields"], {**NEWER_SCHEMA["fields"][-1], "default": None}]}


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

        spec = document["spec"]["kafka"]["tables"][0]
        spec["schema"] = {"subject": "states-value", "version": 2}  # its new field has no default
        system.apply("DataSource", "shipments", document["spec"])
        message = system.wait_condition("datasource", "shipments", "SchemaKnown", "False", "SourceUnreadable")
        assert "$.state: the writer has no such field, and the reader's has no default" in message
        third = server.register("states-value", READABLE_SCHEMA)
        spec |= {"schema": {"subject": "states-value"}, "evolve": "addColumns"}
        system.apply("DataSource", "shipments", document["spec"])
        change(kafka, topic, framed(third, written(READABLE_SCHEMA, {"id": 3, "state": "last"})))
        expected = [{"id": 1, "state": None}, {"id": 2, "state": "new"}, {"id": 3, "state": "last"}]
        wait_for("the column of all rows", lambda: rows() == expected, system.log)
        system.wait_condition("datasource", "shipments", "SchemaKnown")


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


def test_a_source_that_lost_events_goes_on_once_onGap_is_edited(system: System, kafka: Broker) -> None:
    """It waits for a transaction that lacks an event; with `skip` the others of it are taken, and with `stop` again it
    waits at the next one."""
    shop, names = Shop(kafka), ("orders", "items")
    columns, key = [{"name": "name", "type": "STRING"}], [{"name": "id", "type": "BIGINT"}]
    form = {"format": "json", "columns": columns, "envelope": "debezium", "key": {"format": "json", "columns": key}}
    tables = [{"name": name, "topic": shop.connector.topic(name), **form} for name in names]
    kafka_spec = {"brokers": [kafka.address], "transactions": {"topic": shop.connector.transaction_topic}}
    spec = {"instance": "default", "tick": "200ms", "kafka": {**kafka_spec, "tables": tables}}
    system.apply("DataSource", "held", spec)

    def contents() -> dict[str, list[tuple[int, str]]]:
        answers = {name: system.query(f"SELECT id, name FROM held.{name}")["rows"] for name in names}
        return {name: sorted((int(row["id"]), row["name"]) for row in rows) for name, rows in answers.items()}

    def set_gap(on_gap: str) -> None:
        patch = [{"op": "add", "path": "/spec/kafka/tables/1/onGap", "value": on_gap}]
        system.kubectl("patch", "datasource", "held", "--type=json", "-p", json.dumps(patch))

    def message() -> str:
        return str(system.condition("datasource", "held", "Ingesting").get("message", ""))

    def says(text: str) -> None:
        wait_for(text, lambda: text in message(), message)

    def commit(name: str) -> None:
        shop.commit(("orders", 1, name), ("items", 1, name), ("items", 5, name))
        shop.commit(("items", 1, f"{name}2"), ("items", 2, f"{name}2"))
        shop.connector.send_all()

    system.wait_condition("datasource", "held", "Ready")
    assert contents() == {"orders": [], "items": []}
    shop.connector.left_out = {("items", 5)}
    commit("a")
    says("TransactionIncomplete: transaction 700 of topic")
    assert contents() == {"orders": [], "items": []}
    set_gap("skip")
    first = {"orders": [(1, "a")], "items": [(1, "a2"), (2, "a2")]}
    wait_for("the transactions", lambda: contents() == first, system.log)
    says("GapSkipped: table items: gaps passed over: 1; the last one: transaction 700: table items has 1 of its 2")
    set_gap("stop")

    def is_held() -> bool:  # the replica may take some transactions before it takes the edit
        commit("b")
        return "TransactionIncomplete: transaction" in message()

    wait_for("the next hold", is_held, message)
    before = contents()
    commit("c")
    assert contents() == before


def test_crash_columns_that_come_are_for_new_views(system: System, kafka: Broker) -> None:
    """A field that records had before anybody took it. Views of before go on as they are; the table that they read goes
    once nothing reads it. Where a record is gone the edit is refused, and nothing changes."""
    topic, short = new_topic(kafka), new_topic(kafka)

    def grow(*columns: str) -> None:
        columns_of = [{"name": name, "type": "STRING" if name == "page" else "INT"} for name in columns]
        tables = [{"name": "visits", "topic": topic}, {"name": "short", "topic": short}]
        given: list[Any] = [{**table, "format": "json", "columns": columns_of} for table in tables]
        if columns[-1] == "ms":
            given[1]["columns"] = columns_of[:-1]
        spec = {"instance": "default", "tick": "200ms", "deletionPolicy": "Delete"}
        system.apply("DataSource", "late", {**spec, "kafka": {"brokers": [kafka.address], "tables": given}})

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in system.query(sql)["rows"]), key=repr)

    def tables() -> set[str]:
        return {table["name"] for table in system.get("datasource", "late")["status"].get("tables", [])}

    for name in (topic, short):
        change(kafka, name, {"id": 1, "page": "a", "ms": 5}, {"id": 2, "page": "a"}, {"id": 3, "page": "b", "ms": 7})
    grow("id", "page")
    system.dataflow("hits", "SELECT page, count(*) AS n FROM late.visits GROUP BY page")
    system.wait_hydrated("hits")
    wait_for("the records", lambda: rows("SELECT page, n FROM hits") == [("a", 2), ("b", 1)], system.log)
    wait_for("the others", lambda: len(rows("SELECT id FROM late.short")) == 3, system.log)
    planned = system.get("dataflow", "hits")["status"]["revision"]["name"]

    delete_records(kafka, short, 0, 2)
    grow("id", "page", "ms", "late")
    message = system.wait_condition("datasource", "late", "SchemaKnown", "False", reason="SourceUnreadable")
    assert "begins at offset 2, and the table at 0" in message
    assert tables() == {"visits", "short"}

    pids = system.replica_pids()
    grow("id", "page", "ms")
    system.dataflow("times", "SELECT id, ms FROM late.visits")
    wait_for("the successor", lambda: tables() == {"visits", "visits.1", "short"}, system.log)
    system.kill_replica()
    change(kafka, topic, {"id": 4, "page": "b", "ms": 9})
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    system.wait_hydrated("times")
    expected = [(1, 5), (2, None), (3, 7), (4, 9)]
    wait_for("all rows", lambda: rows("SELECT id, ms FROM times") == expected, system.log)
    wait_for("the view of before", lambda: rows("SELECT page, n FROM hits") == [("a", 2), ("b", 2)], system.log)
    assert planned == system.get("dataflow", "hits")["status"]["revision"]["name"]

    system.kubectl("delete", "dataflow", "hits", "--wait=true")
    wait_for("the first table is gone", lambda: tables() == {"visits", "short"}, system.log)
    change(kafka, topic, {"id": 5, "ms": 1})
    wait_for("the next record", lambda: rows("SELECT id, ms FROM times") == [*expected, (5, 1)], system.log)
    system.kubectl("delete", "dataflow", "times", "--wait=true")
    system.kubectl("delete", "datasource", "late", "--wait=true")
