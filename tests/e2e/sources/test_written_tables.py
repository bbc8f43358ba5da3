"""examples/written from kubectl apply to a view; and calls that are done once, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder

from tests.e2e.system import CHECKOUT, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

EXAMPLE = CHECKOUT / "examples" / "written"
CALL_SECONDS = 240
KILLS = 4
FIRST_ID = 100
"""The first id of the orders that a test adds to those of the example."""


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


def spending(system: System, as_of: int | None = None) -> dict[str, tuple[int, str]]:
    rows = system.query("SELECT name, orders, spent FROM spent", as_of)["rows"]
    return {row["name"]: (row["orders"], str(row["spent"])) for row in rows}


def apply_example(system: System) -> None:
    for document in yaml.safe_load_all((EXAMPLE / "shop.yaml").read_text()):
        system.apply(document["kind"], document["metadata"]["name"], document["spec"])


def publish_spent(system: System) -> None:
    """The example's view, as a materialized view that is published at each change. All its times stay readable."""
    *_, flow = yaml.safe_load_all((EXAMPLE / "shop.yaml").read_text())
    publish = {"every": "onCommit", "changeDataFeed": True, "partitionBy": ["name"], "fileSize": "1Mi"}
    view = {"materializedView": {"publish": publish}, "readPolicy": {"lag": "1h"}}
    system.dataflow("published", flow["spec"]["sql"], **view)


def published(system: System, version: int | None = None) -> dict[str, tuple[int, str]]:
    """The rows of the published table, as a reader outside finds them."""
    table = DeltaTable(published_location(system), version=version)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()).to_pylist()
    assert len({row["name"] for row in rows}) == len(rows), rows
    return {row["name"]: (row["orders"], str(row["spent"])) for row in rows}


def published_location(system: System) -> str:
    location: str = system.get("dataflow", "published")["status"]["exports"][0]["published"]["location"]
    return location


def published_versions(system: System) -> dict[int, int]:
    """The versions of the published table, with the time that each says."""
    history = DeltaTable(published_location(system)).history()
    return {entry["version"]: int(entry["tidemark.time"]) for entry in history if "tidemark.time" in entry}


def check_each_version(system: System) -> None:
    """Each version of the published table has the rows that the view had at its time."""
    versions = published_versions(system)
    assert versions
    for version, at in versions.items():
        rows = system.query("SELECT name, orders, spent FROM published", at)["rows"]
        expected = {row["name"]: (row["orders"], str(row["spent"])) for row in rows}
        assert published(system, version) == expected, f"version {version}, time {at}"


def insert(system: System, name: str, file: str | Path, *more: str) -> dict[str, Any]:
    done = system.tidemark("insert", name, "--from", str(file), "-n", system.namespace, "-o", "json", *more)
    assert done.returncode == 0, done.stderr + system.log()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def begin(system: System, name: str, body: str, *more: str) -> subprocess.Popen[str]:
    """The same as a process, with the body on its standard input."""
    command = [
        sys.executable,
        "-m",
        "tidemark_cli",
        "insert",
        name,
        "--from",
        "-",
        "-n",
        system.namespace,
        "-o",
        "json",
    ]
    options = ["--gateway-file", str(system.home / "gateway.json"), "--timeout", f"{CALL_SECONDS}s", *more]
    process = subprocess.Popen(
        [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(body)
    process.stdin.close()
    process.stdin = None
    return process


def test_the_example_from_nothing_to_a_live_view(system: System) -> None:
    apply_example(system)
    publish_spent(system)
    insert(system, "shop.customers", EXAMPLE / "customers.csv")
    written = insert(system, "shop.orders", EXAMPLE / "orders.jsonl")
    assert (written["rows"], written["repeated"]) == (3, False)
    rows = system.query("SELECT id FROM shop.orders ORDER BY id", as_of=written["time"])["rows"]
    assert [row["id"] for row in rows] == [1, 2, 3]
    system.wait_hydrated("spent")
    wait_for("the rows", lambda: spending(system) == {"ann": (2, "14.75"), "bob": (1, "20.00")}, system.log)

    insert(system, "shop.orders", EXAMPLE / "changes.jsonl", "--upsert")
    insert(system, "shop.orders", EXAMPLE / "cancelled.csv", "--delete")
    wait_for("the changes", lambda: spending(system) == {"ann": (2, "29.50"), "bob": (1, "7.00")}, system.log)

    system.wait_condition("dataflow", "published", "Published")
    wait_for("the table", lambda: published(system) == {"ann": (2, "29.50"), "bob": (1, "7.00")}, system.log)
    check_each_version(system)

    again = system.tidemark("insert", "shop.orders", "--from", str(EXAMPLE / "orders.jsonl"), "-n", system.namespace)
    assert again.returncode == 1
    assert "DUPLICATE_KEY: the row with id = '1' is there already" in again.stderr
    unknown = system.tidemark("insert", "shop", "--from", str(EXAMPLE / "orders.jsonl"), "-n", system.namespace)
    assert "has several tables; name one of them: customers, orders" in unknown.stderr


def test_a_column_is_added_and_the_rows_stay(system: System) -> None:
    """A view of before goes on, and new queries see the column, NULL in the rows of before."""
    table = {"name": "orders", "columns": [{"name": "id", "type": "BIGINT"}], "primaryKey": ["id"]}
    spec = {"instance": "default", "tick": "200ms", "table": {"tables": [table]}}
    system.apply("DataSource", "grown", spec)
    insert_rows(system, "grown.orders", {"id": 1}, {"id": 2})
    system.dataflow("total", "SELECT count(*) AS n, sum(id) AS s FROM grown.orders")
    system.wait_hydrated("total")

    table["columns"] = [{"name": "id", "type": "BIGINT"}, {"name": "vip", "type": "BOOLEAN"}]
    system.apply("DataSource", "grown", spec)

    def found() -> list[dict[str, Any]]:
        query = ("query", "SELECT id, vip FROM grown.orders ORDER BY id", "-n", system.namespace, "-o", "json")
        done = system.tidemark(*query)
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
        return rows

    wait_for("the column", lambda: found() == [{"id": 1, "vip": None}, {"id": 2, "vip": None}], system.log)
    insert_rows(system, "grown.orders", {"id": 4, "vip": True})
    assert found()[-1] == {"id": 4, "vip": True}
    total = [{"n": 3, "s": 7}]
    wait_for("the row", lambda: system.query("SELECT n, s FROM total")["rows"] == total, system.log)


def insert_rows(system: System, table: str, *rows: dict[str, Any]) -> None:
    body = "".join(json.dumps(row) + "\n" for row in rows)
    process = begin(system, table, body, "--format", "jsonl")
    _, errors = process.communicate(timeout=CALL_SECONDS + 60)
    assert process.returncode == 0, errors + system.log()


@pytest.mark.slow
def test_crash_each_version_of_a_published_table_is_right(system: System) -> None:
    """Replicas and operators are killed while rows are written and published. Each version has the view's rows of its
    time, and the last one has all."""
    apply_example(system)
    publish_spent(system)
    insert(system, "shop.customers", EXAMPLE / "customers.csv", "--upsert")
    system.wait_condition("dataflow", "published", "Published")
    (before,) = system.query("SELECT count(*) AS n FROM shop.orders")["rows"]
    first = FIRST_ID
    for _ in range(KILLS):
        first = insert_during(system, first, system.kill_replica, "shop.orders", customer=1, amount=1)
        restart(system)
        system.wait_hydrated("published")  # a view whose replicas die while it hydrates is set aside
    expected = before["n"] + first - FIRST_ID
    wait_for("all rows", lambda: sum(orders for orders, _ in published(system).values()) == expected, system.log)
    check_each_version(system)


@pytest.mark.slow
def test_crash_calls_are_done_once_whoever_is_killed(system: System) -> None:
    """The ingester and the operator are killed while clients insert; the clients repeat their calls by themselves."""
    columns = [{"name": "id", "type": "BIGINT"}]
    table = {"name": "orders", "columns": columns, "primaryKey": ["id"]}
    system.apply("DataSource", "kills", {"instance": "default", "tick": "200ms", "table": {"tables": [table]}})
    first = 0
    for kill in (system.kill_replica, lambda: restart(system), system.kill_replica):
        first = insert_during(system, first, kill)
    rows = system.query("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM kills.orders")["rows"]
    assert rows == [{"n": first, "ids": first}]


@pytest.mark.slow
def test_rows_over_http_and_of_whoever_may(system: System) -> None:
    """A webhook's body, with the operator's token; a guessed one writes nothing."""
    system.kill_operator()
    system.arguments = ("--gateway-http-port", "0")
    system.start_operator()
    columns = [{"name": "id", "type": "BIGINT"}, {"name": "who", "type": "STRING", "jsonPointer": "/sender/login"}]
    table = {"name": "events", "columns": columns, "unknownFields": "ignore"}
    system.apply("DataSource", "hook", {"instance": "default", "tick": "200ms", "table": {"tables": [table]}})
    found = json.loads((system.home / "gateway.json").read_text())
    url = f"http://{found['httpAddress']}/v1/namespaces/{system.namespace}/datasources/hook/tables/events/rows"
    body = json.dumps({"id": 1, "sender": {"login": "ann", "id": 7}, "more": []}).encode()

    def post(token: str, key: str) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Idempotency-Key": key}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    token = Path(found["tokenFile"]).read_text().strip()
    wait_for("the table", lambda: post(token, "k")[0] == 200, system.log)
    status, answer = post(token, "k")
    assert (status, answer["rows"], answer["repeated"]) == (200, 1, True)
    assert post("guessed", "k2")[0] == 401
    rows = system.query("SELECT id, who FROM hook.events")["rows"]
    assert rows == [{"id": 1, "who": "ann"}]


def restart(system: System) -> None:
    system.kill_operator()
    system.start_operator()


def insert_during(
    system: System, first: int, kill: Callable[[], None], table: str = "kills.orders", **more: int
) -> int:
    """Clients that insert before, during and after a kill; returns the next id. `more`: values of all rows."""
    processes = []
    for number in range(8):
        ids = range(first, first + 5)
        body = "".join(json.dumps({"id": id, **more}) + "\n" for id in ids)
        processes.append(begin(system, table, body, "--format", "jsonl"))
        first += 5
        time.sleep(0.15)
        if number == 4:
            kill()
    for process in processes:
        _, errors = process.communicate(timeout=CALL_SECONDS + 60)
        assert process.returncode == 0, errors + system.log()
    return first
