"""`kubectl tidemark explain -f` on real processes: plans before anything is applied, and after."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

SQL = (
    "SELECT r_name, count(*) AS nations FROM tpch.nation JOIN tpch.region ON n_regionkey = r_regionkey GROUP BY r_name"
)
WINDOW = "SELECT r_name, rank() OVER (ORDER BY nations) AS place FROM `by-region`"


def manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "compute.tidemark.dev/v1alpha1", "kind": "Dataflow", "metadata": {"name": name}}
    return {**body, "spec": {"instance": "default", **spec}}


def operators(system: System, *arguments: str) -> list[Any]:
    """The plans of the objects, without the ids of this Dataflow."""
    shown = system.explain(*arguments, "-o", "json")
    return [each["plan"] for each in json.loads(re.sub(r'"(Get )?[0-9a-z-]+/', '"', shown))["objects"]]


def counted(system: System) -> int:
    """The number of tables that the view reads, and whose rows are known."""
    return sum("Get" in line and "about" in line for line in system.explain(SQL).splitlines())


def test_plans_of_a_file_are_those_that_its_dataflows_get(system: System, tmp_path: Path) -> None:
    """One of them reads the other, which stands behind it. Nothing is created by the question."""
    specs = {
        "placed": {"sql": WINDOW, "materializedView": {}},
        "by-region": {"sql": SQL, "index": {"key": ["r_name"]}},
    }
    file = tmp_path / "views.yaml"
    file.write_text(yaml.safe_dump_all([manifest(name, spec) for name, spec in specs.items()]))
    wait_for("rows to be counted", lambda: counted(system) == 2, system.log)
    text = system.explain(f"--filename={file}")
    assert text.startswith("Dataflow placed:\n\nimport "), text
    assert "computed anew" in text, text
    assert "reads by-region as its manifest has it" in text, text
    assert "incremental" in text, text
    before = operators(system, "by-region", "-f", str(file))
    assert system.kubectl("get", "dataflows", "-o", "name").strip() == ""

    for name in reversed(specs):
        system.apply("Dataflow", name, {"instance": "default", **specs[name]})
        system.wait_hydrated(name)
    assert operators(system, "by-region") == before
    assert "Dataflow by-region has this plan" in system.explain("by-region", "-f", str(file))
    edited = manifest("by-region", {**specs["by-region"], "sql": SQL.replace("count(*)", "count(*) + 1")})
    (tmp_path / "edited.yaml").write_text(yaml.safe_dump(edited))
    assert "another plan: this one would hydrate" in system.explain(f"--filename={tmp_path / 'edited.yaml'}")
    for name in specs:
        system.kubectl("delete", "dataflow", name)
