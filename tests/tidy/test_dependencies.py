"""Each package imports exactly what its extra installs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.checkout import ROOT, files, generated

EXTRAS = {
    "operator/tidemark_operator": "operator",
    "planner/tidemark_planner": "planner",
    "persist/tidemark_persist": "replica",
    "replica_image/tidemark_replica": "replica",
    "client/tidemark": "client",
    "cli/tidemark_cli": "cli",
    "pgwire/tidemark_pgwire": "pgwire",
}
NOT_IMPORTED = {
    "opentelemetry-api": "tidemark_protocol.tracing imports it",
    "opentelemetry-exporter-otlp-proto-grpc": "tidemark_protocol.tracing imports it",
    "opentelemetry-sdk": "tidemark_protocol.tracing imports it",
    "pandas": "Spark refuses mapInArrow without it",
    "psycopg-binary": "psycopg imports it where it is installed",
    "tpchgen-cli": "a program",
}

SHARED = {"google": "protobuf"}
"""Modules of several distributions: the one whose part is imported."""
BROUGHT = {"client/tidemark": {"pyspark"}}
"""The packages that a program has already which uses a part of ours: `tidemark.spark` is imported by Spark's users
alone."""


@cache
def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return loaded


def named(requirements: list[str]) -> set[str]:
    """The distributions, without their bounds."""
    return {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in requirements}


@cache
def imported(folder: str) -> frozenset[str]:
    """The distributions that a package's modules come from, at any depth of its code."""
    of_module, found = packages_distributions(), set[str]()
    for path in files(f"{folder}/*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if not generated(path) else ():
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found |= {name.partition(".")[0] for name in names}
    theirs = {m for m in found if m not in sys.stdlib_module_names and m.partition("_")[0] != "tidemark"}
    # py4j is Spark's own bridge, of the version that Spark asks for
    return frozenset(SHARED.get(m, of_module[m][0]).lower().replace("_", "-") for m in theirs - {"py4j"})


@pytest.mark.parametrize("folder", EXTRAS)
def test_imported_packages_are_installed(folder: str) -> None:
    """By the package's own extra, or for everybody."""
    installed = named(project()["dependencies"]) | named(project()["optional-dependencies"][EXTRAS[folder]])
    assert imported(folder) - installed - BROUGHT.get(folder, set()) == set()


@pytest.mark.parametrize("extra", sorted(set(EXTRAS.values())))
def test_installed_packages_are_imported(extra: str) -> None:
    """Or there is a reason that no import tells."""
    used = frozenset().union(*(imported(folder) for folder, of in EXTRAS.items() if of == extra))
    assert named(project()["optional-dependencies"][extra]) - used - set(NOT_IMPORTED) == set()


def test_spark_finds_the_pandas_that_it_asks_for() -> None:
    """The replica's kernels run in mapInArrow, which needs no pandas and yet refuses to begin without it."""
    from pyspark.sql.pandas import utils

    assert "pandas" in named(project()["optional-dependencies"]["replica"])
    utils.require_minimum_pandas_version()


def test_every_dependency_is_bounded() -> None:
    """From below by what was tried, from above by what may break."""
    lists = [project()["dependencies"], *project()["optional-dependencies"].values()]
    assert [r for some in lists for r in some if not re.fullmatch(r"[\w.-]+>=[\d.]+,<[\d.]+", r)] == []


def test_the_lock_names_every_dependency() -> None:
    """`make lock` was run after the last change of pyproject.toml."""
    lines = Path(ROOT / "constraints.txt").read_text().splitlines()
    locked = {line.partition("==")[0].lower() for line in lines if "==" in line}
    lists = [project()["dependencies"], *project()["optional-dependencies"].values()]
    assert named([r for some in lists for r in some]) - locked == set()


def test_the_controller_is_reached_through_its_facade() -> None:
    """Outside `fleet/` no module of the operator uses the attribute `core` of an instance."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files("operator/tidemark_operator/*.py")
        if "fleet" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "core"
    ]
    assert found == []
