"""Each reason by which a source stops or waits stands in its guide, and in the table of conditions, with what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.checkout import ROOT, files

DOCS = ROOT / "docs"
STORAGE = "replica_image/tidemark_replica/storage"
GUIDES = {"delta": "delta", "files": "sources", "kafka": "kafka", "postgres": "postgres", "written": "written-tables"}
REASON = re.compile(r"((?:[A-Z][a-z]+){2,5})(?:: .*)?", re.DOTALL)
NO_REASONS = {"LogSegment", "LooseRecord", "ZonedRecord"}
"""Names of types that stand in strings."""


def texts(kind: str) -> Iterator[str]:
    """Strings of the source's code; of a formatted one its beginning."""
    for path in files(f"{STORAGE}/{kind}/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def reasons(kind: str) -> set[str]:
    """The constants of stop.py, and words in CamelCase that are a text or begin one, as `TooManyRows: ...`."""
    found = {match[1] for text in texts(kind) if (match := REASON.fullmatch(text))}
    stop = ROOT / STORAGE / kind / "stop.py"
    nodes = ast.walk(ast.parse(stop.read_text())) if stop.exists() else ()
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(value))) if name.isupper():
                found.add(value)
    return found - NO_REASONS


def rows(page: str) -> list[list[str]]:
    text = (DOCS / page).read_text()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("kind", GUIDES)
def test_each_reason_of_a_source_is_explained(kind: str) -> None:
    """Its guide has a row with what happened and what to do, or a sentence; the reference names it, too."""
    known = reasons(kind)
    assert len(known) >= {"delta": 8, "kafka": 17, "postgres": 11}.get(kind, 1)
    for page in (f"guides/{GUIDES[kind]}.md", "reference/conditions.md"):
        text = (DOCS / page).read_text()
        assert sorted(reason for reason in known if f"`{reason}`" not in text) == [], page


@pytest.mark.parametrize("kind", GUIDES)
def test_each_row_of_a_reason_says_what_to_do(kind: str) -> None:
    """In the guide's table `reason, what happened, what to do`."""
    known = reasons(kind)
    told = [row for row in rows(f"guides/{GUIDES[kind]}.md") if re.match(r"`(\w+)`", row[0])]
    told = [row for row in told if row[0].split("`")[1] in known]
    assert [row for row in told if len(row) < 3 or not all(row)] == []
