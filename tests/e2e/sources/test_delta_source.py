"""examples/delta from kubectl apply to a view: commits arrive whole, also around the death of the replica."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, Field, write_deltalake

from tests.e2e.system import CHECKOUT, System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

EXAMPLE = CHECKOUT / "examples" / "delta"


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


def spending(system: System) -> dict[str, tuple[int, int]]:
    rows = system.query("SELECT name, orders, spent FROM spent")["rows"]
    return {row["name"]: (row["orders"], row["spent"]) for row in rows}


def vips(system: System) -> dict[str, bool | None]:
    return {row["name"]: row["vip"] for row in system.query("SELECT name, vip FROM vips")["rows"]}


def example(lake: Path) -> dict[str, Any]:
    """Its documents by kind, ticking faster, with the tables in this folder."""
    text = (EXAMPLE / "lake.yaml").read_text().replace("/var/lib/lake", str(lake)).replace("tick: 1s", "tick: 200ms")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_crash_commits_reach_the_view_whole_whoever_is_killed(system: System) -> None:
    """A merge, the replica killed with SIGKILL, an update and an OPTIMIZE; a column that is added, and named in the
    spec; then another table at the path."""
    lake, writer = system.folder / "lake", runpy.run_path(str(EXAMPLE / "lake.py"))
    writer["create"](str(lake))
    documents = example(lake)
    for kind, document in documents.items():
        system.apply(kind, document["metadata"]["name"], document["spec"])
    system.wait_hydrated("spent")
    expected = {"ann": (2, 20), "bob": (2, 20), "eve": (2, 20)}
    wait_for("the snapshot", lambda: spending(system) == expected, system.log)

    writer["merge"](str(lake))
    pids = system.replica_pids()
    system.kill_replica()
    DeltaTable(lake / "orders").update({"amount": "amount + 1"}, predicate="id = 0")
    DeltaTable(lake / "orders").optimize.compact()
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    expected = {"ann": (3, 46), "bob": (3, 45), "eve": (2, 35)}
    wait_for("all commits", lambda: spending(system) == expected, system.log)

    customers = DeltaTable(lake / "customers")
    customers.alter.add_columns([Field("vip", "boolean")])
    customers.update({"vip": "name = 'ann'"}, predicate="name <> 'bob'")
    documents["DataSource"]["spec"]["delta"]["tables"][1]["columns"].append("vip")
    system.apply("DataSource", "lake", documents["DataSource"]["spec"])
    system.dataflow("vips", "SELECT name, vip FROM lake.customers")
    system.wait_hydrated("vips")
    wait_for("the new column", lambda: vips(system) == {"ann": True, "bob": None, "eve": False}, system.log)
    assert spending(system) == expected

    shutil.rmtree(lake / "customers")
    write_deltalake(lake / "customers", pa.table({"id": pa.array([1]), "name": ["eve"]}))
    message = system.wait_condition("datasource", "lake", "Ingesting", "False", "TableReplaced")
    assert "table customers:" in message
