"""A published table at a location of its own: allowed later, moved by an edit, listed, deleted with its Dataflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.spark]

GENERATOR = {"tpch": {"scaleFactor": 0.001, "transactionsPerSecond": 5}}
SQL = "SELECT n_regionkey, count(*) AS nations FROM moving.nation GROUP BY n_regionkey"


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


@pytest.mark.broad
def test_a_table_is_published_where_the_instance_allows(system: System, tmp_path: Path) -> None:
    def publish(location: Path) -> None:
        view = {"publish": {"every": "1s", "location": str(location)}}
        spec = {"instance": "default", "sql": SQL, "materializedView": view, "deletionPolicy": "Delete"}
        system.apply("Dataflow", "moved", spec)

    def has_rows(location: Path) -> bool:
        return (location / "_delta_log").is_dir() and DeltaTable(location).to_pyarrow_table().num_rows == 5

    def condition(type: str) -> dict[str, Any]:
        found = json.loads(system.kubectl("get", "dataflow", "moved", "-o", "json")).get("status", {})
        return next((each for each in found.get("conditions", ()) if each["type"] == type), {})

    one, two, foreign = (tmp_path / name for name in ("one", "two", "foreign"))
    write_deltalake(foreign, pa.table({"mine": [1]}))
    system.apply("DataSource", "moving", {"instance": "default", "loadGenerator": GENERATOR})
    publish(one)
    wait_for("the refusal", lambda: "is not allowed" in condition("Planned").get("message", ""), system.log)
    patch = {"spec": {"publish": {"locations": [str(tmp_path)]}}}
    system.kubectl("patch", "computeinstance", "default", "--type=merge", "-p", json.dumps(patch))
    wait_for("the table", lambda: has_rows(one), system.log)
    publish(two)
    wait_for("the table after the edit", lambda: has_rows(two), system.log)
    (left,) = wait_for("the table before it", lambda: retained(system), system.log)
    assert (left["location"], left["state"], left["kind"]) == (str(one), "replaced", "Dataflow")
    publish(foreign)
    wait_for("the refusal of a foreign table", lambda: "holds table" in condition("Published")["message"], system.log)
    assert DeltaTable(foreign).version() == 0
    publish(two)
    wait_for("the table again", lambda: condition("Published").get("status") == "True", system.log)
    system.kill_replica()
    system.kubectl("delete", "dataflow", "moved")
    wait_for("the table to go", lambda: not two.exists(), system.log)
    assert has_rows(one), "an edit left it"
    (left,) = wait_for("a listing", lambda: retained(system), system.log)
    done = system.tidemark("tables", "--delete", f"{left['name']}/{left['part']}/published", "-n", system.namespace)
    assert done.returncode == 0, done.stderr
    wait_for("the table that an edit left to go", lambda: not one.exists(), system.log)
    assert DeltaTable(foreign).version() == 0


def retained(system: System) -> list[dict[str, Any]]:
    """The published tables at other locations that no Dataflow publishes."""
    listed = system.tidemark("tables", "--retained", "-n", system.namespace, "-o", "json")
    found = json.loads(listed.stdout).get("tables", []) if not listed.returncode else []
    return [each for each in found if "@" in each["part"]]
