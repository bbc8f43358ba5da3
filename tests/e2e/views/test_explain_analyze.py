"""`explain --analyze`: beside each estimate what the operator holds and has cost, as introspection has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

SQL = (
    "SELECT r_name, count(*) AS nations FROM tpch.nation JOIN tpch.region ON n_regionkey = r_regionkey GROUP BY r_name"
)
OPERATORS = "SELECT operator, records, bytes FROM tidemark_introspection.operators WHERE dataflow = 'by-region'"


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in (*node.get("inputs", ()), *(binding["plan"] for binding in node.get("bindings", ()))):
        yield from nodes(below)


def test_the_plan_has_what_its_operators_hold(system: System) -> None:
    """The plan has it of each replica; the words and numbers of the relation `operators`, each at the operator of its
    kind."""
    system.dataflow("by-region", SQL, index={"key": ["r_name"]})
    system.wait_hydrated("by-region")
    wait_for("operators to be reported", lambda: system.query(OPERATORS)["rows"], system.log)

    found = json.loads(system.explain("by-region", "--analyze", "-o", "json"))
    below = [node for built in found["objects"] for node in nodes(built["plan"])]
    measured = [(node["operator"].split()[0], each) for node in below for each in node.get("measured", ())]
    kinds = {each["name"].split()[0]: kind for kind, each in measured}
    assert (kinds["read"], kinds["join"]) == ("Get", "Join")
    assert {kind for kind, _ in measured} == {"Get", "Join", "Reduce"}
    rows = {row["operator"]: (row["records"], row["bytes"]) for row in system.query(OPERATORS)["rows"]}
    at_operators = {each["name"]: (each["records"], each["bytes"]) for _, each in measured}
    indexes = {name for name in rows if name.startswith("index ")}
    assert at_operators == {name: sizes for name, sizes in rows.items() if name not in indexes}
    assert len(indexes) == 1
    assert all(any(name in note for note in found["notes"]) for name in indexes)

    text = system.explain("by-region", "--analyze")
    assert " join holds 30 rows in " in text, text
    assert "steps took" in text or "step took" in text
    assert "no replica runs it" in system.explain(SQL, "--analyze")
    system.kubectl("delete", "dataflow", "by-region")
