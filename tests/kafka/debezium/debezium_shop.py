"""A PostgreSQL database whose changes Debezium's connector writes to Kafka, for the tests of the Kafka source.

PostgreSQL ──slot, pgoutput──► Kafka Connect, Debezium ──► topics shop.public.<table>, shop.transaction ──► DataSource
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.dialects.postgres import Postgres, running
from tests.kafka.broker import Broker
from tests.kafka.topics import new_topic, spec_of
from tests.ports import free_port
from tests.postgres.databases import LOGICAL, History, connect
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.types import Column, SqlType

PREFIX = "shop"
TRANSACTIONS = f"{PREFIX}.transaction"
ADVISED = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "skipped.operations": "none",
    "provide.transaction.metadata": "true",
}
"""The settings that docs/guides/kafka.md advises."""
SCHEMA = """
create table items (id int primary key, part text, amount numeric(12,2), note text, at timestamptz, ts timestamp,
  day date, ok boolean, v double precision, doc jsonb, tags text[], nums bigint[], raw bytea, u uuid);
create table "Odd Orders" (a text, b date, amounts numeric(9,2)[], vs double precision[], words varchar[], note text,
  primary key (a, b));
alter table items alter note set storage external, alter tags set storage external, alter nums set storage external,
  alter raw set storage external;
alter table "Odd Orders" alter note set storage external, alter vs set storage external;
alter table "Odd Orders" replica identity full;
create table signals (id text primary key, type text, data text);
create publication everything for all tables;
insert into items (id, part, note) select g, 'before', repeat('b', 3000) from generate_series(1, 40) g;
insert into "Odd Orders" (a, b, note) select 'before', date '2020-01-01' + g, 'n' from generate_series(1, 20) g;
"""
COLUMNS = {
    "items": (
        (("id", "INT"),),
        (
            *(("part", "STRING"), ("amount", "DECIMAL(12,2)"), ("note", "STRING"), ("at", "TIMESTAMP")),
            *(("ts", "TIMESTAMP_NTZ"), ("day", "DATE"), ("ok", "BOOLEAN"), ("v", "DOUBLE"), ("doc", "STRING")),
            *(("tags", "ARRAY<STRING>"), ("nums", "ARRAY<BIGINT>"), ("raw", "BINARY"), ("u", "STRING")),
        ),
    ),
    "Odd Orders": (
        (("a", "STRING"), ("b", "DATE")),
        (("amounts", "ARRAY<DECIMAL(9,2)>"), ("vs", "ARRAY<DOUBLE>"), ("words", "ARRAY<STRING>"), ("note", "STRING")),
    ),
}
NAMES = tuple(COLUMNS)
# of a table whose name has a space, Debezium 3.6 cannot take an incremental snapshot
SNAPSHOT_AGAIN = """insert into signals values (gen_random_uuid(), 'execute-snapshot',
  '{"data-collections": ["public.items"], "type": "incremental"}')"""


class ShopHistory(History):
    """Transactions over SCHEMA. An update of a key of items writes anew what may be TOASTed."""

    shown: Mapping[str, tuple[str, str]] = {
        "items": (
            "items",
            "id, part, amount, note, at, ts, day, ok, v, doc::text, tags, nums, raw, u::text, null",
        ),
        "Odd Orders": ('"Odd Orders"', "a, b, amounts, vs, words, note, null"),
    }

    def write_all(self) -> None:
        """A transaction with an event for each row, and so for each partition."""
        with connect(self._server, self._database) as writer:
            writer.execute("insert into items (id) select g from generate_series(0, 30) g on conflict do nothing")
            writer.execute("""insert into "Odd Orders" select 'z', date '2030-01-01' + g from generate_series(0, 30) g
              on conflict do nothing""")
            writer.execute("update items set ok = ok")
            writer.execute('update "Odd Orders" set b = b')
        self.states.append(self.now())

    def _statements(self, n: int, m: int) -> list[str]:
        long = f"repeat('{m % 7}', {n} * 100)"
        row = (
            f"select g, chr(97 + g % 5), (g * 1.5)::numeric(12,2), {long},"
            f" timestamptz '2020-01-01' + g * interval '1.000001 s',"
            f" timestamp '1969-12-31 23:59:59.5' + g * interval '1.5 s', date '1999-12-31' + g, g % 2 = 0,"
            f" case g % 4 when 0 then 'NaN' when 1 then '-Infinity' when 2 then g / 3.0::float8 end,"
            f" jsonb_build_object('g', g, 'n', {long}), array[{long}, null, 'a \"b'],"
            f" array(select h * 1000000007::bigint from generate_series(1, {n * 10}) h), convert_to({long}, 'UTF8'),"
            f" md5(g::text)::uuid"
        )
        orders = (
            f"select chr(97 + g % 3), date '2020-01-01' + g, array[g, null, 0.25], array(select h / 7.0 from"
            f" generate_series(1, {n * 10}) h), array['NULL', '', null], {long}"
        )
        return [
            f"insert into items {row} from generate_series({n}, {n + m % 9}) g on conflict do nothing",
            f"insert into items (id) values ({m}) on conflict (id) do update set note = null, doc = null",
            f"insert into items (id, tags, nums) values ({m}, '{{}}', '{{}}')"
            " on conflict (id) do update set tags = '{}'",
            f"update items set amount = amount + 1 where id % 3 = {n % 3}",
            f"update items set day = day + 1, ts = null, u = null where id = {n}",
            f"update items set part = part where id < {n}",
            f"update items set nums = nums || {n}::bigint, ok = not ok where id = {m}",
            f"update items set id = id + 60, note = note || 'y', tags = tags || 'z'::text, nums = null,"
            f" raw = raw || '\\x00', doc = '[1, null]' where id % 9 = {n % 9} and id < 60",
            f"delete from items where id % 7 = {n % 7}",
            f'insert into "Odd Orders" {orders} from generate_series({n}, {n + m % 5}) g on conflict do nothing',
            f"update \"Odd Orders\" set note = '{m}' where b = date '2020-01-01' + {n}",
            f"update \"Odd Orders\" set words = null where b < date '2020-01-01' + {n}",
            f"update \"Odd Orders\" set b = b + 100 where b = date '2020-01-01' + {n}",
            f"delete from \"Odd Orders\" where b < date '2020-01-01' + {n % 9}",
            SNAPSHOT_AGAIN,
        ]


@contextmanager
def server_on_tcp() -> Iterator[Postgres]:
    """A server that the connector's JVM reaches, too."""
    with running(*LOGICAL, "listen_addresses=127.0.0.1", port=free_port()) as server:
        yield server


def topic_of(table: str, prefix: str = PREFIX) -> str:
    return f"{prefix}.public.{table.replace(' ', '_')}"


def create_topics(kafka: Broker, *tables: str, partitions: int = 2) -> None:
    new_topic(kafka, 1, TRANSACTIONS)
    new_topic(kafka, 1, f"__debezium-heartbeat.{PREFIX}")
    for name in tables:
        new_topic(kafka, partitions, topic_of(name))


def connector(server: Postgres, database: str, schemas: bool, **more: str) -> dict[str, str]:
    """The settings of a connector; `schemas`: the JSON has them."""
    json = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "test",
        "database.password": "none",
        "database.dbname": database,
        "topic.prefix": PREFIX,
        "publication.name": "everything",
        "publication.autocreate.mode": "disabled",
        "slot.name": database,
        "slot.retry.delay.ms": "500",
        "slot.max.retries": "100",
        "signal.data.collection": "public.signals",
        "key.converter": json,
        "value.converter": json,
        "key.converter.schemas.enable": str(schemas).lower(),
        "value.converter.schemas.enable": str(schemas).lower(),
        **ADVISED,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def table(name: str, topic: str, key: Any, values: Any, **options: Any) -> KafkaTable:
    keyed: dict[str, Any] = {"envelope": "debezium", "key_format": "json", "key_columns": columns(key)}
    return KafkaTable(name, topic, "json", columns(values), **(keyed | options))


def columns(of: Any) -> tuple[Column, ...]:
    return tuple(Column(name, SqlType.parse(type)) for name, type in of)


def source(kafka: Broker, **options: Any) -> KafkaSource:
    """The tables of SCHEMA, by whole transactions."""
    tables = (table(name, topic_of(name), *of) for name, of in COLUMNS.items())
    return spec_of(kafka, *tables, **({"transactions": TRANSACTIONS} | options))
