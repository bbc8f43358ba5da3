"""deletionPolicy: Delete. Tables are deleted with their object, and the next object begins with an empty location."""

from __future__ import annotations

import pytest

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.spark]

GENERATOR = {"tpch": {"scaleFactor": 0.001, "transactionsPerSecond": 5}}
SOURCE = {"instance": "default", "loadGenerator": GENERATOR, "deletionPolicy": "Delete"}
VIEW = {
    "instance": "default",
    "sql": "SELECT n_regionkey, count(*) AS nations FROM doomed.nation GROUP BY n_regionkey",
    "materializedView": {},
    "deletionPolicy": "Delete",
}


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
        assert all((table / "_delta_log").is_dir() for table in tables)

        system.kubectl("delete", "datasource", "doomed", "--wait=false")
        message = system.wait_condition("datasource", "doomed", "Ready", "False", "InUse")
        assert "Dataflow reader" in message
        system.kubectl("delete", "dataflow", "reader")
        wait_for(
            "the source to go", lambda: "doomed" not in system.kubectl("get", "datasources", "-o", "name"), system.log
        )

        assert [table for table in tables if table.exists()] == []
        wait_for(
            "the tombstones to go",
            lambda: "tombstone" not in system.kubectl("get", "controllerrevisions", "-o", "name"),
            system.log,
        )
