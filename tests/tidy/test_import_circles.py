"""No module imports itself through others, not even for its types: any two modules have an order of reading."""

from __future__ import annotations

import tomllib
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest
from grimp import build_graph

from tests.tidy.checkout import ROOT

PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]


@pytest.fixture(scope="module")
def graph() -> Any:
    first, *others = PACKAGES
    return build_graph(first, *others)


def test_no_module_imports_itself_through_others(graph: Any) -> None:
    circles = TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    try:
        circles.prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' imports '.join(reversed(error.args[1]))}")
    assert len(graph.modules) > 500
