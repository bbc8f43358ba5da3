"""examples/written from kubectl apply to a view; and calls that are done once, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.system import CHECKOUT, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

EXAMPLE = CHECKOUT / "examples" / "written"
CALL_SECONDS = 240


def spent(system: System, as_of: int | None = None) -> dict[str, tuple[int, str]]:
    rows = system.query("SELECT name, orders, spent FROM spent", as_of)["rows"]
    return {row["name"]: (row["orders"], str(row["spent"])) for row in rows}


def apply_example(system: System, tick: str) -> None:
    for document in yaml.safe_load_all((EXAMPLE / "shop.yaml").read_text().replace("tick: 1s", f"tick: {tick}")):
        system.apply(document["kind"], document["metadata"]["name"], document["spec"])


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
    apply_example(system, "1s")
    insert(system, "shop.customers", EXAMPLE / "customers.csv")
    written = insert(system, "shop.orders", EXAMPLE / "orders.jsonl")
    assert (written["rows"], written["repeated"]) == (3, False)
    rows = system.query("SELECT id FROM shop.orders ORDER BY id", as_of=written["time"])["rows"]
    assert [row["id"] for row in rows] == [1, 2, 3]
    system.wait_hydrated("spent")
    wait_for("the rows", lambda: spent(system) == {"ann": (2, "14.75"), "bob": (1, "20.00")}, system.log)

    insert(system, "shop.orders", EXAMPLE / "changes.jsonl", "--upsert")
    insert(system, "shop.orders", EXAMPLE / "cancelled.csv", "--delete")
    wait_for("the changes", lambda: spent(system) == {"ann": (2, "29.50"), "bob": (1, "7.00")}, system.log)

    again = system.tidemark("insert", "shop.orders", "--from", str(EXAMPLE / "orders.jsonl"), "-n", system.namespace)
    assert again.returncode == 1
    assert "DUPLICATE_KEY: the row with id = '1' is there already" in again.stderr
    unknown = system.tidemark("insert", "shop", "--from", str(EXAMPLE / "orders.jsonl"), "-n", system.namespace)
    assert "has several tables; name one of them: customers, orders" in unknown.stderr


def test_crash_calls_are_done_once_whoever_is_killed(system: System) -> None:
    """The ingester and the operator are killed while clients insert; the clients repeat their calls by themselves."""
    apply_example(system, "200ms")
    insert(system, "shop.customers", EXAMPLE / "customers.csv")
    insert(system, "shop.orders", EXAMPLE / "orders.jsonl")
    first = 1000
    for kill in (system.kill_replica, lambda: restart(system), system.kill_replica):
        first = insert_during(system, first, kill)
    rows = system.query("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM shop.orders")["rows"]
    assert rows == [{"n": 3 + first - 1000, "ids": 3 + first - 1000}]


def restart(system: System) -> None:
    system.kill_operator()
    system.start_operator()


def insert_during(system: System, first: int, kill: Callable[[], None]) -> int:
    """Clients that insert before, during and after a kill; returns the next id."""
    processes = []
    for number in range(8):
        ids = range(first, first + 5)
        body = "".join(json.dumps({"id": id, "customer": 1, "amount": 1}) + "\n" for id in ids)
        processes.append(begin(system, "shop.orders", body, "--format", "jsonl"))
        first += 5
        time.sleep(0.15)
        if number == 4:
            kill()
    for process in processes:
        _, errors = process.communicate(timeout=CALL_SECONDS + 60)
        assert process.returncode == 0, errors + system.log()
    return first
