"""Ledgers that are written all the time: in PostgreSQL, in Kafka as Debezium writes it, and in a Delta table.

    accounts (id, owner, balance)    owners (id, name)    a Delta table has both in one: (id, name, balance)

Each transaction moves money, accounts and names. It also writes its own number as the balance of the account VERSION,
whose owner has the name `version`: so each state of the ledger is known by its number, as is what a view of it shows.
"""

from __future__ import annotations

import json
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.dialects.postgres import Postgres
from tests.kafka.broker import Broker
from tests.kafka.debezium.connector import Change, Connector, Upstream
from tests.kafka.topics import new_topic
from tests.postgres.databases import connect

VERSION = -1
OWNERS, ACCOUNTS, MONEY = 4, 12, 1000
Row = tuple[Any, ...]
Rows = dict[str, dict[int, Row]]
"""By table, the other values of each id."""
Totals = dict[str, tuple[int, int]]
"""By name of owner, the number of accounts and what is in them."""


def totals(rows: Rows) -> Totals:
    found: Totals = {}
    for owner, balance in rows["accounts"].values():
        (name,) = rows["owners"][owner]
        count, total = found.get(name, (0, 0))
        found[name] = (count + 1, total + balance)
    return found


def version_of(found: Totals) -> int:
    return found.get("version", (0, 0))[1]


def changes(before: dict[int, Row], after: dict[int, Row]) -> dict[int, Row | None]:
    """The rows that are others afterwards; None for those that are gone."""
    ids = sorted(before.keys() | after.keys())
    return {id: after.get(id) for id in ids if before.get(id) != after.get(id)}


class Ledger(ABC):
    """A ledger and the thread that writes it. `states`: what a view of it shows after each transaction, also after
    the one that is being written."""

    pause_seconds = 0.1

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows: Rows = {"accounts": {}, "owners": {}}
        self.states: list[Totals] = [{}]
        self.failures: list[BaseException] = []

    @property
    def version(self) -> int:
        return len(self.states) - 1

    def step(self) -> None:
        """One transaction."""
        before, after = self.rows, self._next()
        self.states.append(totals(after))
        self.write(before, after)
        self.rows = after

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Transactions in a thread of its own, until the block ends; then one that writes every row."""
        end = threading.Event()

        def steps() -> None:
            try:
                while not end.wait(self.draw.uniform(0.0, 2 * self.pause_seconds)):
                    self.step()
                self.finish()
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=steps, name=type(self).__name__)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
        assert not self.failures, self.failures

    def finish(self) -> None:
        """The last transaction."""
        self.step()

    @abstractmethod
    def write(self, before: Rows, after: Rows) -> None:
        """Writes one transaction, whoever is killed meanwhile."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """The fields of a DataSource that follows it."""

    def view(self, source: str) -> str:
        """A view of the source's tables that shows `totals`."""
        return (
            f"SELECT o.name, count(*) AS accounts, sum(a.balance) AS total FROM {source}.accounts a"
            f" JOIN {source}.owners o ON o.id = a.owner GROUP BY o.name"
        )

    def contents(self) -> dict[str, list[Row]]:
        """By table, the rows that it has now."""
        return {table: sorted((id, *row) for id, row in rows.items()) for table, rows in self.rows.items()}

    def _next(self) -> Rows:
        draw, version = self.draw, self.version + 1
        accounts, owners = dict(self.rows["accounts"]), dict(self.rows["owners"])
        if not accounts:
            owners = {VERSION: ("version",), **{id: (f"owner-{id}",) for id in range(OWNERS)}}
            accounts = {id: (id % OWNERS, MONEY) for id in range(ACCOUNTS)}
        accounts.pop(VERSION, None)
        for _ in range(draw.randrange(1, 5)):
            self._move(accounts, *draw.sample(sorted(accounts), 2))
        if draw.random() < 0.3:
            id = draw.choice(sorted(accounts))
            accounts[id] = (draw.randrange(OWNERS), accounts[id][1])
        if draw.random() < 0.2 and len(accounts) > ACCOUNTS // 2:
            gone, other = draw.sample(sorted(accounts), 2)
            accounts[other] = (accounts[other][0], accounts[other][1] + accounts.pop(gone)[1])
        if draw.random() < 0.2 and len(accounts) < 2 * ACCOUNTS - 2:
            new = draw.choice(sorted(set(range(2 * ACCOUNTS)) - accounts.keys()))
            accounts[new] = (draw.randrange(OWNERS), 0)
            self._move(accounts, draw.choice(sorted(accounts.keys() - {new})), new)
        if draw.random() < 0.2:
            id = draw.randrange(OWNERS)
            owners[id] = (f"owner-{id}-{version}",)
        return {"accounts": accounts | {VERSION: (VERSION, version)}, "owners": owners}

    def _move(self, accounts: dict[int, Row], one: int, other: int) -> None:
        amount = self.draw.randrange(1, 100)
        for id, by in ((one, -amount), (other, amount)):
            accounts[id] = (accounts[id][0], accounts[id][1] + by)


class PostgresLedger(Ledger):
    """In a database of a server. Some transactions write nonsense, and are rolled back."""

    def __init__(self, server: Postgres, seed: int) -> None:
        super().__init__(seed)
        self._server, self.database = server, f"bank{seed}"
        self._writer: psycopg.Connection[Any] | None = None
        with connect(server, "postgres", autocommit=True) as connection:
            connection.execute(f"create database {self.database}".encode())
        with connect(server, self.database, autocommit=True) as connection:
            connection.execute("create table owners (id int primary key, name text not null)")
            connection.execute("create table accounts (id int primary key, owner int not null, balance bigint)")
            connection.execute("create publication everything for all tables")

    def source(self) -> dict[str, Any]:
        tables = [{"name": name, "table": name} for name in self.rows]
        place = {"host": "127.0.0.1", "port": self._server.port, "database": self.database, "sslMode": "disable"}
        return {"postgres": {**place, "secret": "bank", "publication": "everything", "tables": tables}}

    def write(self, before: Rows, after: Rows) -> None:
        """A transaction whose end is not known is looked for, and written again where it is not there."""
        while True:
            try:
                if self._writer is None:
                    self._writer = connect(self._server, self.database)
                    if self._written() == after["accounts"][VERSION]:
                        return
                if self.draw.random() < 0.1:
                    with self._writer.transaction(force_rollback=True):
                        self._writer.execute("update accounts set balance = balance + 1, owner = 0")
                with self._writer.transaction():
                    self._apply(self._writer, before, after)
                return
            except psycopg.OperationalError:
                self.close()
                threading.Event().wait(0.1)

    def finish(self) -> None:
        super().finish()
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            with suppress(psycopg.Error):
                self._writer.close()
        self._writer = None

    def _written(self) -> Row | None:
        assert self._writer is not None
        with self._writer.transaction():
            return self._writer.execute("select owner, balance from accounts where id = %s", [VERSION]).fetchone()

    def _apply(self, writer: psycopg.Connection[Any], before: Rows, after: Rows) -> None:
        upserts = {
            "owners": "insert into owners values (%s, %s) on conflict (id) do update set name = excluded.name",
            "accounts": "insert into accounts values (%s, %s, %s) on conflict (id) do update"
            " set owner = excluded.owner, balance = excluded.balance",
        }
        for table, upsert in upserts.items():
            for id, row in changes(before[table], after[table]).items():
                if row is None:
                    writer.execute(f"delete from {table} where id = %s".encode(), [id])
                else:
                    writer.execute(upsert.encode(), [id, *row])


FIELDS = {"accounts": ("owner", "balance"), "owners": ("name",)}
TYPES = {"owner": "BIGINT", "balance": "BIGINT", "name": "STRING"}


class RowConnector(Connector):
    """A Connector whose rows have several values."""

    def _row(self, change: Change) -> dict[str, Any]:
        assert change.after is not None
        return {"id": change.id, **json.loads(change.after)}


class KafkaLedger(Ledger):
    """In topics that a connector of Debezium writes, which dies now and then and writes events again."""

    partitions = 2

    def __init__(self, kafka: Broker, seed: int) -> None:
        super().__init__(seed)
        self._kafka, self._upstream = kafka, Upstream(tuple(self.rows))
        self._connector = RowConnector(kafka, f"bank{seed}", self._upstream, self.partitions)
        for table in self.rows:
            new_topic(kafka, self.partitions, self._connector.topic(table))
        new_topic(kafka, 1, self._connector.transaction_topic)

    def source(self) -> dict[str, Any]:
        tables = [self._table(name) for name in self.rows]
        followed = {"topic": self._connector.transaction_topic}
        brokers = [f"127.0.0.1:{self._kafka.secure_port}"]
        return {"kafka": {"brokers": brokers, "secret": "kafka", "transactions": followed, "tables": tables}}

    def write(self, before: Rows, after: Rows) -> None:
        made = [
            self._change(table, id, row)
            for table in self.rows
            for id, row in changes(before[table], after[table]).items()
        ]
        if self.draw.random() < 0.3 or not self.version % 10:
            made += self._all(after)
        self._upstream.commit(*made)
        if self.draw.random() < 0.05:
            self._connector.restart_somewhere(self.draw)
        if self.draw.random() < 0.3:
            self._connector.send(self.draw.randrange(1, 20))
        else:
            self._connector.send_all()

    def finish(self) -> None:
        """A transaction that began in the middle is whole once each partition has an event of a later one."""
        super().finish()
        self._upstream.commit(*self._all(self.rows))
        self._connector.send_all()

    def _all(self, rows: Rows) -> list[Change]:
        """Each row as it is: an event for each partition."""
        return [self._change(table, id, row) for table, of in rows.items() for id, row in of.items()]

    def _change(self, table: str, id: int, row: Row | None) -> Change:
        after = None if row is None else json.dumps(dict(zip(FIELDS[table], row, strict=True)))
        return Change(table, id, after)

    def _table(self, name: str) -> dict[str, Any]:
        key = {"format": "json", "columns": [{"name": "id", "type": "BIGINT"}]}
        columns = [{"name": field, "type": TYPES[field]} for field in FIELDS[name]]
        topic = self._connector.topic(name)
        return {
            "name": name,
            "topic": topic,
            "format": "json",
            "columns": columns,
            "envelope": "debezium",
            "key": key,
        }


class DeltaLedger(Ledger):
    """In a Delta table. `feed`: with change data. A transaction is a MERGE; now and then files are compacted."""

    pause_seconds = 0.5
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("balance", pa.int64()), ("gone", pa.bool_())])

    def __init__(self, path: Path, seed: int, feed: bool) -> None:
        super().__init__(seed)
        self.path = str(path)
        empty = pa.Table.from_pylist([], self.schema).drop_columns(["gone"])
        write_deltalake(self.path, empty, configuration={"delta.enableChangeDataFeed": str(feed).lower()})

    def source(self) -> dict[str, Any]:
        return {"delta": {"tables": [{"name": "accounts", "path": self.path}]}}

    def view(self, source: str) -> str:
        return f"SELECT name, count(*) AS accounts, sum(balance) AS total FROM {source}.accounts GROUP BY name"

    def contents(self) -> dict[str, list[Row]]:
        return {"accounts": sorted((id, *row) for id, row in self._named(self.rows).items())}

    def write(self, before: Rows, after: Rows) -> None:
        made = changes(self._named(before), self._named(after))
        rows = [
            {"id": id, "gone": row is None, **dict(zip(("name", "balance"), row or (None, None), strict=True))}
            for id, row in made.items()
        ]
        table, values = DeltaTable(self.path), {name: f"s.{name}" for name in ("id", "name", "balance")}
        merge = table.merge(pa.Table.from_pylist(rows, self.schema), "t.id = s.id", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.gone").when_matched_update(values)
        merge.when_not_matched_insert(values).execute()
        if self.draw.random() < 0.1:
            DeltaTable(self.path).optimize.compact()
        if self.draw.random() < 0.05:
            DeltaTable(self.path).create_checkpoint()

    def _named(self, rows: Rows) -> dict[int, Row]:
        return {id: (*rows["owners"][owner], balance) for id, (owner, balance) in rows["accounts"].items()}
