"""Tables are added to a DataSource and removed from it while it runs, around the deaths of operator and replica."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


def append(system: System, table: str, *numbers: int) -> None:
    write_deltalake(str(system.folder / "lake" / table), pa.table({"n": list(numbers)}), mode="append")


def name_tables(system: System, *tables: str, **spec: Any) -> None:
    """Applies the DataSource with these tables."""
    entries = [{"name": table, "path": str(system.folder / "lake" / table)} for table in tables]
    given = {"instance": "default", "tick": "200ms", "deletionPolicy": "Delete", "delta": {"tables": entries}}
    system.apply("DataSource", "lake", given | spec)


def total(system: System, view: str) -> int | None:
    rows = system.query(f"SELECT total FROM {view}")["rows"]
    return rows[0]["total"] if rows else None


def revisions(system: System) -> list[str]:
    names = system.kubectl("get", "controllerrevisions", "-o", "name").split()
    return [name.rpartition("-")[2] for name in names if "/lake-" in name]


def test_crash_tables_come_and_go_while_the_others_are_ingested(system: System) -> None:
    for table in ("a", "b"):
        append(system, table, 1)
    name_tables(system, "a")
    system.dataflow("totala", "SELECT sum(n) AS total FROM lake.a")
    system.wait_hydrated("totala")

    name_tables(system, "a", "b")
    system.kill_operator()
    system.start_operator()
    system.dataflow("totalb", "SELECT sum(n) AS total FROM lake.b")
    system.wait_hydrated("totalb")
    wait_for("the new table", lambda: total(system, "totalb") == 1, system.log)
    wait_for("both in the status", lambda: [t["name"] for t in tables(system)] == ["a", "b"], system.log)
    location = tables(system)[1]["location"]

    append(system, "a", 10)
    append(system, "b", 20)
    name_tables(system, "a")
    message = system.wait_condition("datasource", "lake", "SchemaKnown", "False", "TableInUse")
    assert "Dataflow totalb" in message
    system.kill_replica()
    wait_for("both tables", lambda: (total(system, "totala"), total(system, "totalb")) == (11, 21), system.log)
    system.wait_condition("datasource", "lake", "Ready")

    system.kubectl("delete", "dataflow", "totalb", "--wait=true")
    system.wait_condition("datasource", "lake", "SchemaKnown")
    wait_for("the table's end", lambda: [t["name"] for t in tables(system)] == ["a"], system.log)
    wait_for(
        "its deletion",
        lambda: not os.path.exists(os.path.join(location, "_delta_log", "00000000000000000000.json")),
        system.log,
    )
    wait_for("one revision", lambda: revisions(system) == ["r3"], system.log)

    append(system, "a", 100)
    wait_for("the table that stays", lambda: total(system, "totala") == 111, system.log)
    name_tables(system, "a", "b")
    message = system.wait_condition("datasource", "lake", "SchemaKnown", "False", "TableNameUsed")
    assert "table b was removed" in message


def tables(system: System) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = system.get("datasource", "lake")["status"].get("tables", [])
    return found
