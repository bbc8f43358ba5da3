"""Whose SQL a file of tests is in: the planner's translation (tidemark_planner.dialects) makes it Spark's.

Without a given dialect, the conditions and directives of the file determine it.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidemark_planner.dialects.errors import NotTranslated as NotTranslated
from tidemark_planner.dialects.translation import Translator as Translator

_SIGNS = (
    (
        "duckdb",
        re.compile(r"^(# name: test/|# group: \[|require (skip_reload|noforcestorage)|PRAGMA enable_verif)", re.M),
    ),
    (
        "postgres",
        re.compile(r"^(# LogicTest:|mode cockroach|reset-server|query [A-Z]+ .*(colnames|partialsort))", re.M),
    ),
    ("sqlite", re.compile(r"^(skipif|onlyif) (sqlite|mysql|mssql|oracle|postgresql)\b", re.M)),
    ("sqlite", re.compile(r"^hash-threshold 8$.*?^query [ITR]+ (nosort|rowsort|valuesort)", re.M | re.S)),
)
_READ = 200_000  # characters


def dialect_of(path: Path) -> str:
    """Whose file it is, by what it has that no other's has; Spark's if nothing tells."""
    with path.open("rb") as file:
        text = file.read(_READ).decode("utf-8", "replace").replace("\r\n", "\n")
    return next((name for name, sign in _SIGNS if sign.search(text)), "spark")


def translator(dialect: str, path: Path | None = None) -> Translator:
    """The translation from a dialect to Spark's; from the one that a file shows, where none is said or it says more."""
    shown = dialect_of(path) if path is not None and dialect in ("", "postgres") else dialect
    return Translator(shown if not dialect or shown == "cockroach" else dialect)
