"""Fixture files: cases of SQL and their results.

    -- a title
    SELECT ...
    ----
    the expected text
    ====
    -- the next case

With TIDEMARK_WRITE_FIXTURES=1 in the environment a test writes what came instead of comparing: read the difference.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WRITE = bool(os.environ.get("TIDEMARK_WRITE_FIXTURES"))


@dataclass(frozen=True)
class Case:
    title: str
    sql: str
    expected: str


def cases(file: Path) -> list[Case]:
    found = []
    for part in file.read_text().split("\n====\n"):
        if part.strip():
            sql, _, expected = part.strip("\n").partition("\n----\n")
            title, _, text = sql.partition("\n")
            found.append(Case(title.removeprefix("--").strip(), text, expected.strip("\n")))
    return found


def write(file: Path, outcomes: list[tuple[Case, str]]) -> None:
    parts = (f"-- {case.title}\n{case.sql}\n----\n{outcome}" for case, outcome in outcomes)
    file.write_text("\n====\n".join(parts) + "\n")


def check(file: Path, outcomes: list[tuple[Case, str]]) -> None:
    """Compare all cases at once, so that one run shows every difference; or write what came."""
    if WRITE:
        write(file, outcomes)
    expected = {case.title: case.expected for case in cases(file)}

    assert expected == {case.title: outcome for case, outcome in outcomes}
