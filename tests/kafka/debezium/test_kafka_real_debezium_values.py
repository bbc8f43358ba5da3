"""Values as Debezium's connector for PostgreSQL writes them with the settings that docs/guides/kafka.md advises: the
table has those of the database, also where PostgreSQL does not send what an update left as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.postgres import Postgres
from tests.kafka.broker import Broker
from tests.kafka.connect import Worker, connect
from tests.kafka.debezium.debezium_shop import connector, server_on_tcp, table, topic_of
from tests.kafka.topics import Run, new_topic, spec_of
from tests.postgres.databases import Database, create_database
from tests.storage.ingestion_samples import contents, errors, oks
from tidemark_persist import DIFF, ERROR

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.broad]
TICKS = 200
NESTED = "array(select g from generate_series(1, 1000) g)"
LONG = "repeat('x', 3000)"
TOLD = {
    "t": ("text", "STRING", LONG),
    "vc": ("varchar(5000)", "STRING", LONG),
    "ch": ("char(3)", "STRING", "'c'"),
    "by": ("bytea", "BINARY", f"convert_to({LONG}, 'UTF8')"),
    "js": ("json", "STRING", f"to_json({LONG})"),
    "jb": ("jsonb", "STRING", f"to_jsonb({LONG})"),
    "xm": ("xml", "STRING", f"{LONG}::xml"),
    "ta": ("text[]", "ARRAY<STRING>", f"array[{LONG}, null]"),
    "va": ("varchar[]", "ARRAY<STRING>", f"array[{LONG}]"),
    "ia": ("int[]", "ARRAY<INT>", NESTED),
    "la": ("bigint[]", "ARRAY<BIGINT>", NESTED),
    "ld": ("bigint[]", "ARRAY<DECIMAL(20,0)>", NESTED),
    "it": ("int[]", "STRING", NESTED),
    "tt": ("text[]", "STRING", f"array[{LONG}]"),
    "ua": ("uuid[]", "ARRAY<STRING>", "array(select md5(g::text)::uuid from generate_series(1, 300) g)"),
    "ba": ("bytea[]", "ARRAY<BINARY>", f"array[convert_to({LONG}, 'UTF8')]"),
}
"""Columns whose events tell that a TOASTed value is as before: the type there, the type here, and a long value."""
UNTOLD = {
    "sa": ("smallint[]", "ARRAY<SMALLINT>", "array(select g from generate_series(1, 2000) g)"),
    "fa": ("float8[]", "ARRAY<DOUBLE>", NESTED),
    "ra": ("real[]", "ARRAY<FLOAT>", NESTED),
    "na": ("numeric(9,2)[]", "ARRAY<DECIMAL(9,2)>", NESTED),
    "oa": ("boolean[]", "ARRAY<BOOLEAN>", "array(select g % 2 = 0 from generate_series(1, 3000) g)"),
    "da": ("date[]", "ARRAY<DATE>", "array(select date '2020-01-01' + g from generate_series(1, 1000) g)"),
    "za": (
        "timestamptz[]",
        "ARRAY<TIMESTAMP>",
        "array(select timestamptz '2020-01-01' + g * interval '1 s' from generate_series(1, 1000) g)",
    ),
}
"""Columns whose events have NULL instead."""
SHORT = {
    "si": ("smallint", "SMALLINT", "-32768"),
    "i": ("int", "INT", "2147483647"),
    "l": ("bigint", "BIGINT", "9007199254740993"),
    "r": ("real", "FLOAT", "1.5"),
    "d": ("double precision", "DOUBLE", "0.1"),
    "d1": ("double precision", "DOUBLE", "'Infinity'"),
    "d2": ("double precision", "DOUBLE", "'-Infinity'"),
    "n": ("numeric(38,4)", "DECIMAL(38,4)", "1234567890123456789012345678901234.5678"),
    "nn": ("numeric", "STRING", "1e-30"),
    "mo": ("money", "DECIMAL(20,2)", "-1.50"),
    "bo": ("boolean", "BOOLEAN", "true"),
    "b1": ("bit(1)", "BOOLEAN", "'1'"),
    "dt": ("date", "DATE", "'1500-02-28'"),
    "tm": ("time", "STRING", "'01:02:03.123456'"),
    "ts": ("timestamp", "TIMESTAMP_NTZ", "'1969-12-31 23:59:59.999999'"),
    "t0": ("timestamp(0)", "TIMESTAMP_NTZ", "'2020-02-03 04:05:06'"),
    "tz": ("timestamptz", "TIMESTAMP", "'2020-02-03 04:05:06.123456+02'"),
    "iv": ("interval", "BIGINT", "'1 day 2 hours'"),
    "u": ("uuid", "STRING", "md5('a')::uuid"),
    "m": ("mood", "STRING", "'ok'"),
    "p": ("positive", "INT", "5"),
    "ip": ("inet", "STRING", "'10.0.0.1'"),
    "rg": ("int4range", "STRING", "'[1,5)'"),
}
TYPES = "create type mood as enum ('sad', 'ok'); create domain positive as int check (value > 0);"
SHOWN_AS = {
    **dict.fromkeys(("jb", "js", "xm", "nn", "u", "m", "rg"), "{0}::text"),
    "ch": "rpad({0}, 3)",
    "ip": "host({0})",
    "it": "array_to_json({0})::text",
    "tt": "array_to_json({0})::text",
    "ua": "{0}::text[]",
    "mo": "{0}::numeric",
    "b1": "{0}::int::boolean",
    "tm": "to_char({0}, 'HH24:MI:SS.US') || 'Z'",
    "iv": "(extract(epoch from {0}) * 1000000)::bigint",
}
"""The texts that SQL gives of the table; the others are as they are."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with server_on_tcp() as running:
        yield running


@pytest.fixture(scope="module")
def worker(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with connect(kafka, tmp_path_factory.mktemp("connect")) as running:
        yield running


class Mirror:
    """A table `name` of a database of its own, its connector, and the table of a DataSource that follows it. `shown`:
    what SQL shows of its columns."""

    shown: Mapping[str, str] = SHOWN_AS

    def __init__(self, kafka: Broker, server: Postgres, worker: Worker, root: Path, name: str, of: Any) -> None:
        self._root, self.name, self._of = root, name, of
        create_database(server, name, TYPES + self._ddl())
        self.database = Database(server, name)
        topic = new_topic(kafka, 1, topic_of(name, prefix=name))
        more = {"topic_prefix": name, "provide_transaction_metadata": "false"}
        worker.configure(name, connector(server, name, schemas=True, **more))
        values = [("s", "INT"), *((column, type) for column, (_, type, _) in of.items())]
        self.table = table(name, topic, [("id", "BIGINT")], values)
        self.run = Run(root, spec_of(kafka, self.table))

    def _ddl(self) -> str:
        given = ", ".join(f"{column} {type}" for column, (type, _, _) in self._of.items())
        external = [c for c, (type, _, _) in self._of.items() if c in TOLD | UNTOLD and c != "ch"]
        stored = ", ".join(f"alter {column} set storage external" for column in external)
        alter = f"alter table {self.name} {stored};" if external else ""
        publication = f"create publication everything for table {self.name};"
        signals = "create table signals (id text primary key, type text, data text);"
        return f"create table {self.name} (id bigint primary key, s int, {given}); {alter} {publication} {signals}"

    def insert(self, id: int) -> None:
        values = ", ".join(value for _, _, value in self._of.values())
        self.database.run(f"insert into {self.name} values ({id}, 1, {values})")

    def check(self) -> None:
        """The table is at last the one upstream."""
        for _ in range(TICKS):
            if self.rows() == self.upstream():
                return
            self.run.tick()
        raise AssertionError(f"{differences(self.rows(), self.upstream(), ['id', 's', *self._of])}")

    def rows(self) -> list[Any]:
        if self.name not in self.run.source._bound:
            return []
        rows = contents(self._root, self.name).to_pylist()
        assert not [row[ERROR] for row in rows if row[ERROR]]
        return sorted((tuple(v for k, v in row.items() if k not in (DIFF, ERROR)) for row in rows), key=repr)

    def upstream(self) -> list[Any]:
        shown = ", ".join(self.shown.get(column, "{0}").format(column) for column in self._of)
        found = self.database.rows(f"select id, s, {shown} from {self.name}")
        return sorted((tuple(map(plain, row)) for row in found), key=repr)


def differences(found: list[Any], wanted: list[Any], names: list[str]) -> Any:
    """The values that differ; the rows, where their numbers do."""
    if len(found) != len(wanted):
        return [row[:2] for row in found], [row[:2] for row in wanted]
    pairs = zip(found, wanted, strict=True)
    values = (value for has, should in pairs for value in zip(names, has, should, strict=True))
    return [(name, str(a)[:100], str(b)[:100]) for name, a, b in values if a != b]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def test_values_of_each_type(kafka: Broker, server: Postgres, worker: Worker, tmp_path: Path) -> None:
    """In a snapshot and in changes; an update keeps what PostgreSQL does not send."""
    every = Mirror(kafka, server, worker, tmp_path, "every", SHORT | TOLD)
    with every.run:
        every.insert(1)
        every.check()
        every.insert(2)
        every.database.run("insert into every (id) values (3)")
        every.check()
        every.database.run("update every set s = s + 1")
        every.database.run("update every set id = 4 where id = 3", "delete from every where id = 1")
        every.check()


def test_replica_identity_full(kafka: Broker, server: Postgres, worker: Worker, tmp_path: Path) -> None:
    """PostgreSQL sends all values, also of columns of which no event tells that they are as before; keys may change."""
    whole = Mirror(kafka, server, worker, tmp_path, "whole", TOLD | UNTOLD)
    with whole.run:
        whole.database.run("alter table whole replica identity full")
        whole.insert(1)
        whole.check()
        whole.database.run("update whole set s = s + 1")
        whole.check()
        whole.database.run("update whole set id = id + 1")
        whole.check()


def test_what_the_default_identity_loses(kafka: Broker, server: Postgres, worker: Worker, tmp_path: Path) -> None:
    """The guide says so of both: arrays that are NULL after an update of another column, and a row whose key changes
    and not its large values, which is an error until they are written."""
    lost = Mirror(kafka, server, worker, tmp_path, "lost", UNTOLD | {"t": TOLD["t"]})
    with lost.run:
        lost.insert(1)
        lost.check()
        (before,) = lost.rows()
        lost.database.run("update lost set s = 2")
        lost.run.until(lambda: [row[:2] for row in lost.rows()] == [(1, 2)])
        (after,) = lost.rows()
        assert after == (1, 2, *[None] * len(UNTOLD), before[-1])
        lost.database.run("update lost set id = 2")
        lost.run.until(lambda: len(errors(tmp_path, "lost")) == 1)
        assert not oks(tmp_path, "lost")
        values = ", ".join(f"{column} = null" for column in UNTOLD)
        lost.database.run(f"update lost set t = 'written', {values}")
        lost.run.until(lambda: not errors(tmp_path, "lost"))
        lost.check()


def test_a_truncated_table_stops(kafka: Broker, server: Postgres, worker: Worker, tmp_path: Path) -> None:
    emptied = Mirror(kafka, server, worker, tmp_path, "emptied", {"t": TOLD["t"]})
    with emptied.run:
        emptied.insert(1)
        emptied.check()
        emptied.database.run("truncate emptied")
        emptied.run.until(emptied.run.source.stop_reasons)
        assert emptied.run.source.stop_reasons()["emptied"].startswith("Truncated: table emptied")
