"""deletionPolicy: Delete. Tables are deleted with their object, and the next object begins with an empty location."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.spark]

GENERATOR = {"tpch": {"scaleFactor": 0.001, "transactionsPerSecond": 5}}
SOURCE = {"instance": "default", "loadGenerator": GENERATOR, "deletionPolicy": "Delete"}
VIEW = {
    "instance": "default",
    "sql": "SELECT n_regionkey, count(*) AS nations FROM doomed.nation GROUP BY n_regionkey",
    "materializedView": {"publish": {"every": "1s"}},
    "deletionPolicy": "Delete",
}


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


def test_tables_go_with_their_object_and_come_again(system: System) -> None:
    """Deleted while it is read, the source waits for its reader; then both are gone with their tables, and made
    again they start from nothing, at the same places, on the same replica."""
    for round_ in range(2):
        system.apply("DataSource", "doomed", SOURCE)
        system.apply("Dataflow", "reader", VIEW)
        system.wait_hydrated("reader")
        rows = system.query("SELECT n_regionkey, nations FROM reader")["rows"]
        assert sorted(row["nations"] for row in rows) == [5, 5, 5, 5, 5], round_
        tables = [system.shard("doomed", "nation"), system.shard("reader", "reader"), system.shard("doomed", "__remap")]
        tables.append(tables[1].parents[2] / "_published/reader/reader")
        wait_for("the published table", (tables[-1] / "_delta_log").is_dir, system.log)
        assert all((table / "_delta_log").is_dir() for table in tables)

        system.kubectl("delete", "datasource", "doomed", "--wait=false")
        message = system.wait_condition("datasource", "doomed", "Ready", "False", "InUse")
        assert "Dataflow reader" in message
        system.kubectl("delete", "dataflow", "reader")
        wait_for(
            "the source to go", lambda: "doomed" not in system.kubectl("get", "datasources", "-o", "name"), system.log
        )

        wait_for(  # a replica that took longer than a minute leaves one
            "the tombstones to go",
            lambda: "tombstone" not in system.kubectl("get", "controllerrevisions", "-o", "name"),
            system.log,
        )
        assert [table for table in tables if table.exists()] == []


def test_retained_tables_are_listed_and_deleted(system: System) -> None:
    """The Dataflow is gone; while it existed none of its tables might be deleted. The replica is killed when the
    deletion is asked for."""
    system.apply("DataSource", "kept", {**SOURCE, "deletionPolicy": "Retain"})
    sql = "SELECT n_regionkey, count(*) AS nations FROM kept.nation GROUP BY n_regionkey"
    system.dataflow("leaver", sql)
    system.wait_hydrated("leaver")
    table = system.shard("leaver", "leaver")
    assert retained(system) == {}
    refused = system.tidemark("tables", "--delete", "leaver/leaver/v1", "-n", system.namespace)
    assert (refused.returncode, "Dataflow leaver exists" in refused.stderr) == (1, True)

    system.kubectl("delete", "dataflow", "leaver")
    (left,) = wait_for("the table", lambda: retained(system), system.log).values()
    assert (left["kind"], left["state"], left["instance"]) == ("Dataflow", "retained", "default")
    assert int(left["bytes"]) > 0
    assert (table / "_delta_log").is_dir()
    found = system.query("SELECT name, part, version, state FROM tidemark_introspection.retained_tables")["rows"]
    assert found == [{"name": "leaver", "part": "leaver", "version": 1, "state": "retained"}]

    system.kill_replica()
    done = system.tidemark("tables", "--delete", "leaver/leaver/v1", "-n", system.namespace)
    if done.returncode:  # no replica could say what it is
        wait_for("a replica", lambda: retained(system), system.log)
        done = system.tidemark("tables", "--delete", "leaver/leaver/v1", "-n", system.namespace)
    assert done.returncode == 0, done.stderr
    wait_for("the table to go", lambda: not table.exists(), system.log)
    wait_for("the listing without it", lambda: retained(system) == {}, system.log)
    assert system.shard("kept", "nation").exists()


def retained(system: System) -> dict[str, dict[str, Any]]:
    """The tables that no object has, by name, part and version; none while they cannot be listed."""
    done = system.tidemark("tables", "--retained", "-n", system.namespace, "-o", "json")
    tables = json.loads(done.stdout).get("tables", []) if done.returncode == 0 else []
    return {f"{t['name']}/{t['part']}/{t['version']}": t for t in tables}
