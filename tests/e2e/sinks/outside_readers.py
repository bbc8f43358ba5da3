"""Readers of a ledger's view that know nothing of Tidemark: of its published table, of the table that a sink keeps in
PostgreSQL, of the topic that a sink writes."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import psycopg
from confluent_kafka import Consumer, Message, TopicPartition
from deltalake import DeltaTable

from tests.dialects.postgres import Postgres
from tests.e2e.sources.ledgers import Ledger, version_of
from tests.e2e.sources.readers import Reader
from tests.kafka.broker import Broker
from tests.postgres.databases import connect

PAUSE_SECONDS = 0.1


class FileReader(Reader):
    """DuckDB reads the files of each version of a Delta table."""

    def __init__(self, ledger: Ledger, location: str) -> None:
        super().__init__(f"table {location}", ledger)
        self._location = location

    def read_until_the_end(self) -> None:
        with duckdb.connect() as connection:
            while not self.end.wait(PAUSE_SECONDS):
                files = DeltaTable(self._location).file_uris()
                rows = connection.execute("SELECT name, accounts, total FROM read_parquet(?)", [files]).fetchall()
                self.check(rows)


class DatabaseReader(Reader):
    """Psql reads a table, and the time that its sink says of it."""

    def __init__(self, ledger: Ledger, server: Postgres, database: str, table: str) -> None:
        super().__init__(f"table {table} of the database", ledger)
        self._server, self._database, self._table, self._time = server, database, table, -1

    def read_until_the_end(self) -> None:
        while not self.end.wait(PAUSE_SECONDS):
            try:
                with connect(self._server, self._database) as connection:
                    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                    while not self.end.wait(PAUSE_SECONDS):
                        with connection.transaction():
                            self._check(connection)
            except psycopg.OperationalError:  # the server is dead, or starts
                self.refusals["connection"] += 1

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        rows = connection.execute(f"SELECT name, accounts, total FROM {self._table}".encode()).fetchall()
        said = connection.execute("SELECT time FROM tidemark_sinks WHERE table_name = %s", [self._table]).fetchone()
        assert said is not None, f"{self._table} has no time"
        assert said[0] >= self._time, f"time {said[0]} after {self._time}"
        self._time = said[0]
        self.check(rows)


class TopicReader(Reader):
    """A consumer that reads what is committed, each time's records together. `version`: also of a time whose end it
    does not know yet, where its rows are a state."""

    def __init__(self, ledger: Ledger, kafka: Broker, topic: str) -> None:
        super().__init__(f"topic {topic}", ledger)
        self._kafka, self._topic, self._time, self._keys = kafka, topic, -1, set[str]()
        self._rows: dict[str, tuple[int, int]] = {}

    def read_until_the_end(self) -> None:
        settings = {"group.id": "outside", "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._kafka.address, "log_level": 0, **settings})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        try:
            while not self.end.is_set():
                message = consumer.poll(PAUSE_SECONDS)
                if message is None:
                    self._look()
                elif (error := message.error()) is None:
                    self._take(message)
                else:
                    assert not error.fatal(), error
                    self.refusals[error.name()] += 1
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        time, name = int(dict(message.headers())["tidemark.time"]), json.loads(message.key())["name"]
        if time != self._time:
            assert time > self._time, f"time {time} after {self._time}"
            if self._time >= 0:
                self.check((name, *row) for name, row in self._rows.items())
            self._time, self._keys = time, set()
        assert name not in self._keys, f"{name} is there twice at time {time}"
        self._keys.add(name)
        row = None if message.value() is None else json.loads(message.value())
        new = None if row is None else (row["accounts"], row["total"])
        assert self._rows.get(name) != new, f"{name} is there again without a change at time {time}"
        if new is None:
            del self._rows[name]
        else:
            self._rows[name] = new

    def _look(self) -> None:
        version = version_of(self._rows)
        if version > self.version and self._rows == self.ledger.states[version]:
            self.version = version
