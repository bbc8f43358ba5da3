"""Docstrings name their subjects (CONTRIBUTING, Prose and names)."""

import ast
import re
from collections.abc import Iterator

from tests.tidy.checkout import files, generated, name

WITHOUT_SUBJECT = re.compile(r"(As|Called|How|Of|So|That|Those|Until|What|Which|Who|Why)\b")
FURTHER = re.compile(r"(?<=\w[.] )(What|Which|Who|Those)\b[^.]*")


def docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings of modules, classes, functions, fields and constants: the place and the text."""
    for path in files("*.py"):
        if generated(path):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(ast.Constant(str(text))):
                    yield f"{name(path)}:{node.lineno}", " ".join(text.split())


def test_sentences_of_docstrings_begin_with_their_subject() -> None:
    """The first one by more words than the others, where `Of` and `As` may be the shorter way to say a condition."""
    found = []
    for place, text in docstrings():
        if WITHOUT_SUBJECT.match(text):
            found.append(f"{place}: {text[:50]}")
        found += [f"{place}: {sentence[0][:50]}" for sentence in FURTHER.finditer(text)]
    assert found == []
