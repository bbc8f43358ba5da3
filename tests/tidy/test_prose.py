"""Docstrings name their subjects (CONTRIBUTING, Prose and names)."""

import ast
import re

from tests.tidy.checkout import files, generated, name

OUTSIDE = ("tests", "bench")
WITHOUT_SUBJECT = re.compile(r"(As|Called|How|Of|So|That|Those|Until|What|Which|Who|Why)\b")


def test_docstrings_begin_with_their_subject() -> None:
    """Also those of fields and constants."""
    found = []
    for path in files("*.py"):
        if generated(path) or name(path).split("/")[0] in OUTSIDE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(ast.Constant(str(text))) if WITHOUT_SUBJECT.match(text):
                    found.append(f"{name(path)}:{node.lineno}: {text[:50]}")
    assert found == []
