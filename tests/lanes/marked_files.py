"""The files that a lane collects: those that name one of its marks. To import all test modules takes ten seconds of
CPU for each process of a lane, and twenty in a fresh clone.

A file names the marks of its tests itself, as `mark.spark`. The lane that collects all files reports each other file as
an error: its tests would be in no lane (`unnamed_marks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.lanes.ledger import CHECKOUT

MARKS = ("spark", "cluster", "kafka", "postgres", "iceberg", "e2e")
"""Marks by which lanes choose files."""


def files_with(marks: Collection[str]) -> list[str]:
    """The test files that name one of these marks, relative to the checkout, in order."""
    found = (CHECKOUT / "tests").rglob("test_*.py")
    return sorted(str(path.relative_to(CHECKOUT)) for path in found if any(_names(path, mark) for mark in marks))


def names_paths(arguments: Sequence[str]) -> bool:
    """Whether pytest's arguments say themselves what is collected."""
    return any((CHECKOUT / argument.partition("::")[0]).exists() for argument in arguments)


def unnamed_marks(items: Iterable[pytest.Item]) -> list[str]:
    """An error for each mark that a test has and its file does not name."""
    return [
        f"{item.nodeid} has the mark {mark}, which its file does not name, so no lane has it: write pytest.mark.{mark}"
        for item in items
        for mark in MARKS
        if item.get_closest_marker(mark) is not None and not _names(item.path, mark)
    ]


def _names(path: Path, mark: str) -> bool:
    return f"mark.{mark}" in _text(path)


@cache
def _text(path: Path) -> str:
    return path.read_text()
