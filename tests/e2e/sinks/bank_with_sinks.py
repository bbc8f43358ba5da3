"""The bank of the sources whose views leave the system: one as a published table, one into PostgreSQL, one to Kafka.
Outside readers poll all of them through the deaths; each sees states that the view had, in order, and the last one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.sinks.outside_readers import DatabaseReader, FileReader, TopicReader
from tests.e2e.sources.bank import Bank, Kill, bank
from tests.e2e.sources.ledgers import Ledger
from tests.e2e.sources.readers import Reader
from tests.postgres.databases import connect
from tidemark_devcluster.control_plane.control_plane import ControlPlane

WAYS = ("publish", "postgresSink", "kafkaSink")
DATABASE, TABLE, TOPIC = "kept", "totals", "totals"
CONDITIONS = {"publish": "Published", "postgresSink": "Delivered", "kafkaSink": "Delivered"}


def survive(plane: ControlPlane, folder: Path, seed: int, kill: Kill, rounds: int, each: int) -> None:
    """Rounds of deaths, `each` of each kind of process in all. The seed chooses which ledger's view goes which way."""
    with bank(plane, folder, seed) as one:
        with connect(one.server, "postgres", autocommit=True) as connection:
            connection.execute(f"create database {DATABASE}".encode())
        ways = {name: WAYS[(seed + place) % 3] for place, name in enumerate(one.ledgers)}
        fields = fields_of(one)
        one.apply({name: {"materializedView": {way: fields[way]}} for name, way in ways.items()})
        for name, way in ways.items():
            one.system.wait_condition("dataflow", f"{name}-totals", CONDITIONS[way])
        one.survive([reader_of(one, way, name) for name, way in ways.items()], kill, rounds)
        for name, way in ways.items():
            one.system.wait_condition("dataflow", f"{name}-totals", CONDITIONS[way])
        one.check_end(each)


def fields_of(one: Bank) -> Mapping[str, Mapping[str, Any]]:
    """The fields of each destination in a Dataflow."""
    database = {"host": "127.0.0.1", "port": one.server.port, "database": DATABASE, "sslMode": "disable"}
    brokers = [f"127.0.0.1:{one.kafka.secure_port}"]
    return {
        "publish": {"every": "onCommit"},
        "postgresSink": {**database, "secret": "bank", "table": TABLE, "key": ["name"]},
        "kafkaSink": {
            "brokers": brokers,
            "secret": "kafka",
            "topic": TOPIC,
            "key": ["name"],
            "create": {"partitions": 1},
        },
    }


def reader_of(one: Bank, way: str, name: str) -> Reader:
    ledger: Ledger = one.ledgers[name]
    if way == "kafkaSink":
        return TopicReader(ledger, one.kafka, TOPIC)
    if way == "postgresSink":
        return DatabaseReader(ledger, one.server, DATABASE, TABLE)
    exports = one.system.get("dataflow", f"{name}-totals")["status"]["exports"]
    return FileReader(ledger, exports[0]["published"]["location"])
