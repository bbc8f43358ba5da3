"""Files and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
from collections import Counter

from tests.tidy.checkout import files, generated, name

FILE_LINES = 500
FUNCTION_LINES = 70
ROOM_FILES, ROOM_TESTS = 16, 32
OUTSIDE = ("tests", "bench")


def test_files_are_short() -> None:
    """A file of more than 500 lines most likely holds two ideas. No file is cut for its length alone."""
    lengths = {name(path): len(path.read_text().splitlines()) for path in files("*.py") if not generated(path)}
    assert len(lengths) > 100
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES} == {}


def test_rooms_hold_few_files() -> None:
    """A folder of the product is one part of the design. More than 16 modules are several parts. A folder of tests has
    32 at most: those of a part, and what they share."""
    rooms = Counter(name(path.parent) for path in files("*.py") if path.name != "__init__.py")
    large = {room: count for room, count in rooms.items() if room.split("/")[0] not in OUTSIDE and count > ROOM_FILES}
    assert large == {}
    assert {r: n for r, n in rooms.items() if r.split("/")[0] == "tests" and n > ROOM_TESTS} == {}


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
