"""The protocol's page and its tests name each other."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.tidy.checkout import ROOT, files

PAGE = ROOT / "docs" / "protocol.md"
FOLDERS = ("protocol", "replica", "controller", "fuzz", "e2e")
CELL = re.compile(r"`([\w/]*\.py)?(?:::(\w+))?`")


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file below tests/."""
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


def named(text: str) -> list[tuple[str, str | None]]:
    """The tests in the last cells of the page's tables; `::test` is of the file before it."""
    found: list[tuple[str, str | None]] = []
    for line in text.splitlines():
        last = line.rstrip(" |").rpartition("|")[2] if line.startswith("|") else ""
        path = ""
        for file, test in CELL.findall(last):
            path = file or path
            if path.split("/")[-1].startswith("test_"):
                found.append((path, test or None))
    return found


def test_every_test_that_the_page_names_exists() -> None:
    """A renamed test must be renamed there too."""
    mentioned = named(PAGE.read_text())
    assert len(mentioned) > 50
    missing = [f"{path}::{test or ''}" for path, test in mentioned if not (ROOT / "tests" / path).is_file()]
    assert missing == []
    assert [f"{path}::{test}" for path, test in mentioned if test and test not in functions_of(path)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_must_of_the_protocol_is_on_the_page(folder: str) -> None:
    """Each `test_must_` is a row, or belongs to one. The musts of plans alone (`check`) are another page's affair."""
    mentioned = {(path, test) for path, test in named(PAGE.read_text())}
    paths = [str(p.relative_to(ROOT / "tests")) for p in files(f"tests/{folder}/*.py")]
    musts = {(p, t) for p in paths for t in functions_of(p) if t.startswith("test_must_") and "test_check" not in p}
    assert sorted(musts - mentioned) == []


def test_a_name_that_is_wrong_is_seen() -> None:
    """The tests above would pass on anything if they saw no names."""
    assert named("| both | do | `a/test_b.py::test_c`, `::test_d`, `a/test_e.py` |") == [
        ("a/test_b.py", "test_c"),
        ("a/test_b.py", "test_d"),
        ("a/test_e.py", None),
    ]
