"""examples/postgres and examples/postgres-sink from kubectl apply to a view, and back into the database: transactions
arrive whole, whoever is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from tests.dialects.postgres import Postgres, running
from tests.e2e.sources.secrecy import check_secrecy
from tests.e2e.system import CHECKOUT, System, new_namespace, wait_for
from tests.e2e.system import running as running_system
from tests.ports import free_port
from tests.postgres.databases import LOGICAL
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

EXAMPLE, SINK = CHECKOUT / "examples" / "postgres", CHECKOUT / "examples" / "postgres-sink"
PASSWORD = "a-long-password"
Spent = dict[str, tuple[int, Decimal]]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(port: int) -> Iterator[Postgres]:
    with running(*LOGICAL, "listen_addresses=127.0.0.1", port=port) as started:
        hba = started.folder / "data" / "pg_hba.conf"
        hba.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        yield started


@pytest.fixture(scope="module")
def system(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """An instance that lists the Secrets of the source and of the sink."""
    home = tmp_path_factory.mktemp("system")
    with new_namespace(control_plane) as namespace, running_system(control_plane, namespace, home) as system:
        for name, user in {"shop-db": "tidemark", "kept-db": "tidemark_writer"}.items():
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
            values = {"username": user, "password": PASSWORD}
            system.kubectl("apply", "-f", "-", stdin=json.dumps(body | {"stringData": values}))
        system.base(sourceSecrets=["shop-db", "kept-db"])
        yield system


def upstream(server: Postgres, port: int, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(server.folder), port=port, user="test", dbname=database, autocommit=True)


def spending(system: System) -> Spent:
    rows = system.query("SELECT name, orders, spent FROM spent")["rows"]
    return {row["name"]: (row["orders"], Decimal(row["spent"])) for row in rows}


def rows_of_sink(server: Postgres, port: int) -> Spent:
    """The rows that the sink keeps in the database."""
    with upstream(server, port, "shop") as connection:
        rows = connection.execute("select name, orders, spent from kept.spent").fetchall()
    return {name: (orders, spent) for name, orders, spent in rows}


def notes(system: System) -> list[dict[str, int]] | None:
    """None before the table is known."""
    done = system.tidemark("query", "SELECT id FROM shop.notes", "-n", system.namespace, "-o", "json")
    return json.loads(done.stdout)["rows"] if done.returncode == 0 else None


def apply_example(system: System, port: int, *more: dict[str, str]) -> None:
    """The example's documents, ticking faster, with the test's server and further tables."""
    text = (EXAMPLE / "shop.yaml").read_text().replace("tick: 1s", "tick: 200ms")
    for document in yaml.safe_load_all(text):
        spec = document["spec"]
        if "postgres" in spec:
            spec["postgres"] |= {"host": "127.0.0.1", "port": port, "sslMode": "disable", "onGap": "stop"}
            spec["postgres"]["tables"] += more
        system.apply(document["kind"], document["metadata"]["name"], spec)


def apply_sink(system: System, port: int) -> None:
    """The example of a sink, with the test's server."""
    document = yaml.safe_load((SINK / "spent.yaml").read_text())
    document["spec"]["materializedView"]["postgresSink"] |= {"host": "127.0.0.1", "port": port, "sslMode": "disable"}
    system.apply(document["kind"], document["metadata"]["name"], document["spec"])


def test_crash_transactions_reach_the_view_whole_whoever_is_killed(
    system: System, server: Postgres, port: int, tmp_path: Path
) -> None:
    """The replica is killed, then the database, each with transactions after it, which a sink writes back; a table is
    added, another one is dropped upstream, and at the end the DataSource is deleted, and with it its slot."""
    with upstream(server, port, "postgres") as connection:
        connection.execute("create database shop")
        connection.execute("select pg_reload_conf()")
    with upstream(server, port, "shop") as connection:
        connection.execute((EXAMPLE / "shop.sql").read_text().replace("change-me", PASSWORD))
        connection.execute((SINK / "target.sql").read_text().replace("change-me", PASSWORD))
    apply_example(system, port)
    apply_sink(system, port)
    system.wait_hydrated("spent")
    system.wait_condition("dataflow", "kept", "Delivered", "True", "Delivered")

    def wait_for_spent(what: str, expected: dict[str, tuple[int, int]]) -> None:
        rows = {k: (n, Decimal(v)) for k, (n, v) in expected.items()}
        wait_for(what, lambda: spending(system) == rows, system.log)
        wait_for(f"{what} in the sink's table", lambda: rows_of_sink(server, port) == rows, system.log)

    wait_for_spent("the contents", {"ann": (2, 9), "bob": (2, 5), "eve": (2, 7)})

    pids = system.replica_pids()
    system.kill_replica()
    with upstream(server, port, "shop") as connection, connection.transaction():
        connection.execute("update customers set name = 'amy' where id = 1")
        connection.execute("update orders set amount = amount + 1 where customer = 1")
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    wait_for_spent("the transaction after the kill", {"amy": (2, 11), "bob": (2, 5), "eve": (2, 7)})

    server.stop()
    server.start()
    with upstream(server, port, "shop") as connection:
        connection.execute("delete from orders where customer = 2")
    wait_for_spent("the transaction after the restart", {"amy": (2, 11), "eve": (2, 7)})

    with upstream(server, port, "shop") as connection:
        connection.execute("create table notes (id int primary key); insert into notes values (7), (8)")
        connection.execute("grant select on notes to tidemark; alter publication tidemark add table notes")
        apply_example(system, port, {"name": "notes", "table": "notes"})
        connection.execute("delete from notes where id = 7")
    wait_for("the added table", lambda: notes(system) == [{"id": 8}], system.log)

    with upstream(server, port, "shop") as connection:
        connection.execute("drop table customers cascade")
    message = system.wait_condition("datasource", "shop", "Ingesting", "False", "TableMissing")
    assert "table customers:" in message
    check_secrecy(system, PASSWORD)

    with upstream(server, port, "shop") as connection:
        slots = "select count(*) from pg_replication_slots"
        assert connection.execute(slots).fetchone() == (1,)
        system.kubectl("delete", "dataflow", "spent", "kept", "--wait=true")
        system.kubectl("delete", "datasource", "shop", "--wait=true")
        assert connection.execute(slots).fetchone() == (0,)


WEB = """
create table visits (id int primary key, page text not null);
create table pages (page text primary key, url text);
insert into visits values (1, 'a'), (2, 'a'), (3, 'b');
insert into pages values ('a', '/a'), ('b', '/b');
create publication tidemark for table visits, pages;
do $$ begin create role tidemark login replication password 'change-me'; exception when duplicate_object then end $$;
grant select on visits, pages to tidemark;
"""


def apply_web(system: System, port: int, *columns: str) -> None:
    """`visits` with these columns, and `pages` with all that come."""
    visits: dict[str, Any] = {"name": "visits", "table": "visits", "columns": list(columns)}
    source = {"host": "127.0.0.1", "port": port, "sslMode": "disable", "database": "web", "secret": "shop-db"}
    pages = {"name": "pages", "table": "pages", "evolve": "addColumns"}
    source |= {"publication": "tidemark", "tables": [visits, pages]}
    spec = {"instance": "default", "tick": "200ms", "deletionPolicy": "Delete", "postgres": source}
    system.apply("DataSource", "web", spec)


def test_crash_columns_that_come_are_for_new_views(system: System, server: Postgres, port: int) -> None:
    """One is named in the spec, another one is found. Views of before go on as they are; the tables that they read go
    once nothing reads them."""
    with upstream(server, port, "postgres") as connection:
        connection.execute("create database web")
        connection.execute("select pg_reload_conf()")
    with upstream(server, port, "web") as connection:
        connection.execute(WEB.replace("change-me", PASSWORD))
    apply_web(system, port, "id", "page")
    system.dataflow("hits", "SELECT page, count(*) AS n FROM web.visits GROUP BY page")
    system.dataflow("addresses", "SELECT * FROM web.pages")

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in system.query(sql)["rows"])

    def tables() -> set[str]:
        return {table["name"] for table in system.get("datasource", "web")["status"].get("tables", [])}

    def wait_for_rows(sql: str, expected: list[tuple[Any, ...]]) -> None:
        wait_for(sql, lambda: rows(sql) == expected, system.log)

    for name in ("hits", "addresses"):
        system.wait_hydrated(name)
    wait_for_rows("SELECT page, n FROM hits", [("a", 2), ("b", 1)])
    planned = [system.get("dataflow", name)["status"]["revision"]["name"] for name in ("hits", "addresses")]

    with upstream(server, port, "web") as connection:
        connection.execute("alter table visits add ms int default 5")
        connection.execute("alter table pages add title text default 'none', add seen float default random()")
        connection.execute("insert into visits values (4, 'b', 9)")
        seen = sorted(connection.execute("select page, title, seen from pages").fetchall())
    pids = system.replica_pids()
    apply_web(system, port, "id", "page", "ms")
    system.dataflow("times", "SELECT id, ms FROM web.visits")
    system.kill_replica()
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    system.wait_hydrated("times")
    wait_for_rows("SELECT id, ms FROM times", [(1, 5), (2, 5), (3, 5), (4, 9)])
    wait_for("both successors", lambda: tables() == {"visits", "visits.1", "pages", "pages.1"}, system.log)
    system.dataflow("titles", "SELECT * FROM web.pages")
    system.wait_hydrated("titles")
    wait_for_rows("SELECT page, title, seen FROM titles", seen)

    with upstream(server, port, "web") as connection:
        connection.execute("update visits set page = 'a', ms = ms + 1 where id = 4")
    wait_for_rows("SELECT page, n FROM hits", [("a", 3), ("b", 1)])
    wait_for_rows("SELECT id, ms FROM times", [(1, 5), (2, 5), (3, 5), (4, 10)])
    assert rows("SELECT * FROM addresses") == [("a", "/a"), ("b", "/b")]
    assert planned == [system.get("dataflow", name)["status"]["revision"]["name"] for name in ("hits", "addresses")]

    system.kubectl("delete", "dataflow", "hits", "--wait=true")
    wait_for("the first table is gone", lambda: tables() == {"visits", "pages", "pages.1"}, system.log)
    system.dataflow("addresses", "SELECT page, url, title FROM web.pages")
    wait_for("the other one, too", lambda: tables() == {"visits", "pages"}, system.log)
    wait_for_rows("SELECT id, ms FROM times", [(1, 5), (2, 5), (3, 5), (4, 10)])
    system.kubectl("delete", "dataflow", "times", "titles", "addresses", "--wait=true")
    system.kubectl("delete", "datasource", "web", "--wait=true")


def apply_whole(system: System, port: int, *excepted: str) -> None:
    """All tables of the publication but these."""
    source: dict[str, Any] = {"host": "127.0.0.1", "port": port, "sslMode": "disable", "database": "whole"}
    source |= {"secret": "shop-db", "publication": "tidemark", "allTables": True}
    source |= {"exceptTables": [{"table": table} for table in excepted]} if excepted else {}
    spec = {"instance": "default", "tick": "200ms", "deletionPolicy": "Delete", "postgres": source}
    system.apply("DataSource", "whole", spec)


@pytest.mark.slow
def test_crash_a_whole_publication_is_followed(system: System, server: Postgres, port: int) -> None:
    """A table comes, while the replica dies; one cannot be followed, and is told; one leaves, and is excepted."""
    with upstream(server, port, "postgres") as connection:
        connection.execute("create database whole")
        connection.execute("select pg_reload_conf()")
    with upstream(server, port, "whole") as connection:
        connection.execute(
            "create schema sales; create table items (id int primary key, n int); insert into items values (1, 5);"
            " create table sales.items (id int primary key); insert into sales.items values (7);"
            " create table log (line text); create publication tidemark for table items, sales.items, log;"
            " do $$ begin create role tidemark login replication; exception when duplicate_object then null; end $$;"
            f" alter role tidemark login replication password '{PASSWORD}'; grant usage on schema sales to tidemark;"
            " grant select on all tables in schema public, sales to tidemark;"
            " alter default privileges grant select on tables to tidemark"
        )
    apply_whole(system, port)

    def rows(sql: str) -> list[tuple[Any, ...]] | None:
        done = system.tidemark("query", sql, "-n", system.namespace, "-o", "json")
        return sorted(tuple(r.values()) for r in json.loads(done.stdout)["rows"]) if done.returncode == 0 else None

    def wait_for_rows(sql: str, expected: list[tuple[Any, ...]]) -> None:
        wait_for(sql, lambda: rows(sql) == expected, system.log)

    wait_for_rows("SELECT i.id, n, s.id AS s FROM whole.items i CROSS JOIN whole.sales_items s", [(1, 5, 7)])
    message = system.wait_condition("datasource", "whole", "SchemaKnown", "False", "TablesLeftOut")
    assert "public.log: ReplicaIdentity" in message

    with upstream(server, port, "whole") as connection:
        connection.execute("create table later (id int primary key); insert into later values (1)")
        connection.execute("alter publication tidemark add table later")
        pids = system.replica_pids()
        system.kill_replica()
        connection.execute("insert into later values (2); update items set n = 6")
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    wait_for_rows("SELECT id FROM whole.later", [(1,), (2,)])
    wait_for_rows("SELECT id, n FROM whole.items", [(1, 6)])

    with upstream(server, port, "whole") as connection:
        connection.execute("alter publication tidemark drop table later")
    system.wait_condition("datasource", "whole", "Ingesting", "False", "NotPublished")
    assert rows("SELECT id FROM whole.later") is not None
    apply_whole(system, port, "later", "log")
    system.wait_condition("datasource", "whole", "SchemaKnown", "True", "SchemaKnown")
    system.wait_condition("datasource", "whole", "Ingesting", "True", "Ingesting")
    assert {t["name"] for t in system.get("datasource", "whole")["status"]["tables"]} == {"items", "sales_items"}
    system.kubectl("delete", "datasource", "whole", "--wait=true")
