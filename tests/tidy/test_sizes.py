"""Files and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast

from tests.tidy.checkout import files, generated, name

FILE_LINES = 350
FUNCTION_LINES = 70
# files that are longer, and how long they may be: to become shorter, and fewer
LONGER: dict[str, int] = {}


def test_files_are_short() -> None:
    """At most 350 lines, or what the list of exceptions allows; who became short leaves the list."""
    lengths = {name(path): len(path.read_text().splitlines()) for path in files("*.py") if not generated(path)}
    assert len(lengths) > 100
    assert {path: lines for path, lines in lengths.items() if lines > LONGER.get(path, FILE_LINES)} == {}
    assert [path for path in LONGER if lengths.get(path, 0) <= FILE_LINES] == []


def test_functions_fit_on_a_screen() -> None:
    """At most 70 lines, docstrings included."""
    long = []
    for path in files("*.py"):
        if generated(path):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{name(path)}:{node.lineno} {node.name} has {lines} lines")
    assert long == []
