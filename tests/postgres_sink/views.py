"""Views for the tests of the PostgreSQL sink: shards with random histories, and what they hold at each time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.postgres.databases import Database, connect
from tidemark_persist import DIFF, ERROR, TIME, Shard, create_or_open
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import Reached
from tidemark_replica.sinks.postgres.postgres_destination import PostgresDestination
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.values.arrow_types import arrow_schema

COLUMNS = tuple(
    Column(name, SqlType.parse(type))
    for name, type in {"k": "bigint", "part": "string", "name": "string", "price": "double"}.items()
)
KEY = ("part", "k")
OWNER = "shop.flow.view"
Row = tuple[Any, ...]


def sink_to(database: Database, table: str = "kept", key: Sequence[str] = KEY, **more: Any) -> PostgresSink:
    server = database.server
    fields: dict[str, Any] = {"secret": "db", "schema": "public", "owner": OWNER, "ssl_mode": "disable"} | more
    return PostgresSink(str(server.folder), server.port, database.name, table=table, key=tuple(key), **fields)


def secrets_in(folder: Path, **entries: str) -> SourceSecrets:
    """A mounted Secret `db`."""
    place = folder / "secrets" / "db"
    place.mkdir(parents=True, exist_ok=True)
    for name, value in ({"username": "test", "password": "no-password"} | entries).items():
        if not (place / name).exists():
            (place / name).write_text(value)
    return SourceSecrets(folder / "secrets")


class View:
    """A shard, and its contents at each time."""

    def __init__(
        self, folder: Path, columns: Sequence[Column] = COLUMNS, seed: int = 0, shard_id: str = "u1", keys: int = 30
    ) -> None:
        self.folder, self.columns, self.shard_id = folder, tuple(columns), shard_id
        self.schema = arrow_schema(columns)
        self.shard: Shard = create_or_open(str(folder / shard_id), self.schema, shard_id=shard_id)
        self.random, self.keys = random.Random(seed), keys
        self.at: dict[int, Counter[Row]] = {-1: Counter()}
        self.upper = 0

    def step(self, changes: int, times: int = 1) -> Time:
        """Changes some keys at each of some times; returns the last time."""
        draw, updates = self.random, list[tuple[Row, int, int]]()
        now = {(row[1], row[0]): row for row in self.at[self.upper - 1]}
        for time in range(self.upper, self.upper + times):
            for _ in range(changes):
                key = draw.choice("aß"), draw.randrange(self.keys)
                if (before := now.pop(key, None)) is not None:
                    updates.append((before, time, -1))
                if before is None or draw.random() < 0.6:
                    name = draw.choice([None, "", "\\.", 'a "b",\nc', f"name {key}", "NULL"])
                    now[key] = (key[1], key[0], name, draw.choice([None, -0.5, float("inf"), draw.random()]))
                    updates.append((now[key], time, 1))
        return self.append(updates, times)

    def append(
        self, updates: Iterable[tuple[Row, int, int]], times: int = 1, errors: Sequence[tuple[str, int, int]] = ()
    ) -> Time:
        """`updates`: rows with time and difference; `errors`: texts with the same. Returns the last time."""
        upper, updates = self.upper + times, list(updates)
        rows = [(*row, time, diff, None) for row, time, diff in updates]
        rows += [(*(None for _ in self.columns), time, diff, text) for text, time, diff in errors]
        fields = [*self.schema, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string())]
        columns = zip(*rows, strict=True) if rows else ((),) * len(fields)
        table = pa.table([pa.array(list(c), f.type) for c, f in zip(columns, fields, strict=True)], pa.schema(fields))
        self.shard.compare_and_append(table if rows else None, expected_upper=self.upper, new_upper=upper, term=1)
        for time in range(self.upper, upper):
            now = Counter(self.at[time - 1])
            for row, _, diff in (update for update in updates if update[1] == time):
                now[tuple(tuple(value) if isinstance(value, list) else value for value in row)] += diff
            self.at[time] = +now
        self.upper = upper
        return Time(upper - 1)

    def forget_before(self, since: int) -> None:
        """Compacts the history."""
        self.shard.compare_and_append(None, expected_upper=self.upper, new_upper=self.upper + 1, term=1, since=since)
        self.at[self.upper] = self.at[self.upper - 1]
        self.upper += 1

    def destination(
        self, sink: PostgresSink, uid: str = "u", secrets: SourceSecrets | None = None
    ) -> PostgresDestination:
        """A new one, as another replica would make it."""
        metadata = ShardMetadata(ShardId(self.shard_id), str(self.folder / self.shard_id), self.columns)
        id = GlobalId(f"{uid}/view/1")
        return PostgresDestination(id, metadata, sink, ShardHandles(), secrets or secrets_in(self.folder))

    def deliver(self, sink: PostgresSink, time: int | None = None, term: int = 1, uid: str = "u") -> Reached:
        """Delivers the newest time, or another one."""
        at = Time(self.upper - 1 if time is None else time)
        return self.destination(sink, uid).publish(at, WriterTerm(term))

    def rows(self, time: int | None = None) -> Counter[Row]:
        return self.at[self.upper - 1 if time is None else time]


def progress_and_rows(
    database: Database, sink: PostgresSink, columns: Sequence[Column] = COLUMNS
) -> tuple[int | None, Counter[Row]]:
    """The time that the progress row says, and the table's rows, as one transaction of a reader sees them."""
    names = ", ".join(f'"{column.name}"' for column in columns)
    with connect(database.server, database.name) as connection:
        connection.execute("set transaction isolation level repeatable read")
        query = "select time from tidemark_sinks where table_name = %s"
        if connection.execute("select to_regclass('tidemark_sinks')").fetchone() == (None,):
            return None, Counter()
        (time,) = connection.execute(query, (sink.table,)).fetchone() or (None,)
        if time is None:
            return None, Counter()
        return time, Counter(connection.execute(f'select {names} from "{sink.table}"').fetchall())
