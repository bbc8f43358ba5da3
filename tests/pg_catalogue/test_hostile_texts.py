"""Texts that would stop the process: each is decided, refused or answered, and so is the next statement."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import sys
import time
from contextlib import suppress

import pytest

from tests.pg_catalogue.samples import RELATIONS, rows, session
from tidemark_pgwire import catalogue as package
from tidemark_pgwire.catalogue import children
from tidemark_pgwire.catalogue.contents.entries import parts_of_name
from tidemark_pgwire.catalogue.facts import CatalogueError
from tidemark_pgwire.catalogue.session_catalogue import Catalogue
from tidemark_pgwire.catalogue.show_statement import setting_of_show
from tidemark_pgwire.catalogue.sql.rewriting import _array_items
from tidemark_pgwire.statements import subjects
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK
from tidemark_pgwire.statements.subjects import subject_of

LENGTH = 100_000
CPU_S = 5.0
"""The limit of processor time: a quadratic statement takes minutes for LENGTH characters."""
REPEATED = (
    " ",
    "\n",
    "1",
    "a",
    '"',
    '""',
    "'",
    "\\",
    ".",
    ",",
    "{",
    "[ ",
    "from ",
    "from  (",
    "as ",
    "pg_",
    "a.",
    "/*",
)
ENDS = ("", "!", '"', "'", "}", "x")
STARTS = ("", "SHOW a", "SELECT ", "from", "SELECT 1 FROM pg_class WHERE ", "as", "[", '"')
UNBOUNDED = """
from tidemark_pgwire.catalogue import child
from tidemark_pgwire.catalogue.sql import statement
statement._is_deep = lambda text: False
child.main()
"""
HALF_REPLY = "import os, time; os.write(0, (100).to_bytes(4)); time.sleep(60)"


def patterns() -> list[re.Pattern[str]]:
    modules = [
        importlib.import_module(one.name) for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    ]
    found = (value for module in (*modules, subjects) for value in vars(module).values())
    return [one for one in found if isinstance(one, re.Pattern)]


def hostile() -> list[str]:
    return [f"{start}{each * (LENGTH // len(each))}!" for start in STARTS for each in REPEATED]


@pytest.mark.parametrize("pattern", patterns(), ids=lambda one: one.pattern[:30])
def test_patterns_are_linear(pattern: re.Pattern[str]) -> None:
    for text in hostile():
        before = time.process_time()
        pattern.fullmatch(text)
        pattern.match(text)
        if not pattern.pattern.startswith(r"\s"):  # those are not searched for
            pattern.search(text)
        assert time.process_time() - before < CPU_S, (pattern.pattern, text[:20], text[-3:])


@pytest.mark.parametrize("each", REPEATED)
def test_scans_are_linear(each: str) -> None:
    for end in ENDS:
        text = each * (30_000 // len(each)) + end
        before = time.process_time()
        parts_of_name(text)
        setting_of_show(f"SHOW a{text}")
        for dialect in (POSTGRES, SPARK):
            subject_of(f"SELECT pg_x({text}", dialect)
        with suppress(CatalogueError):
            _array_items("{" + text + "}")
        assert time.process_time() - before < CPU_S, (each, end)


@pytest.mark.parametrize("called", ["int", "date", "numeric", "varchar", "lower"])
@pytest.mark.parametrize("end", ["", " FROM pg_class"])
def test_nested_calls_are_decided_without_a_parse(called: str, end: str) -> None:
    text = f"SELECT {called}(" + f"{called}(" * 40 + "1" + ")" * 41 + end
    before = time.process_time()
    subject_of(text, POSTGRES)
    assert time.process_time() - before < CPU_S
    with pytest.raises(CatalogueError):
        asyncio.run(Catalogue(session()).answer(text, (), RELATIONS))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT octet_length(format('%200000000s', relname)) FROM pg_class",
        "SELECT format('%999999999s', 'x') FROM pg_class",
        "SELECT length(" + "replace(" * 40 + "relname" + ", 'a', 'aaaaaaaaaa')" * 40 + ") FROM pg_class"
        " WHERE relname = 'pg_attribute' OR relname = 'totals'",
    ],
)
def test_a_text_that_grows_ends_its_statement_alone(sql: str) -> None:
    found = Catalogue(session())
    with pytest.raises(CatalogueError) as refused:
        rows(found, sql)
    assert refused.value.sqlstate in ("0A000", "53200", "57014")
    assert rows(found, "SELECT relname FROM pg_class WHERE relname = 'orders'") == ["orders"]


def test_a_process_that_cannot_be_started_is_an_error_of_its_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_COMMAND", ["/nothing/is/here"])
    monkeypatch.setattr(children, "QUESTIONS_MAX", 0)  # those of other tests are not asked
    for _ in range(children.CHILDREN + 1):
        with pytest.raises(CatalogueError, match="cannot be started") as refused:
            rows(Catalogue(session()), "SELECT 1")
        assert refused.value.sqlstate == "53000"
    monkeypatch.undo()
    for _ in range(children.CHILDREN + 1):
        assert rows(Catalogue(session()), "SELECT 1") == [1]


def test_a_reply_that_does_not_end_ends_its_statement_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process sends the length of a reply, and stops."""
    monkeypatch.setattr(children, "_COMMAND", [sys.executable, "-P", "-c", HALF_REPLY])
    monkeypatch.setattr(children, "QUESTIONS_MAX", 0)  # those of other tests are not asked
    monkeypatch.setattr(children, "TIME_MAX_S", 1.0)
    monkeypatch.setattr(children, "_START_S", 0.0)
    with pytest.raises(CatalogueError, match="may take 1 s") as refused:
        rows(Catalogue(session()), "SELECT 1")
    assert refused.value.sqlstate == "57014"
    monkeypatch.undo()
    for _ in range(children.CHILDREN + 1):
        assert rows(Catalogue(session()), "SELECT 1") == [1]


def test_a_process_that_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser may take exponential time, which the bounds of texts do not know."""
    monkeypatch.setattr(children, "_COMMAND", [sys.executable, "-P", "-c", UNBOUNDED])
    monkeypatch.setattr(children, "QUESTIONS_MAX", 0)  # those of other tests are not asked
    with pytest.raises(CatalogueError) as refused:
        rows(Catalogue(session()), "SELECT int(" + "int(" * 40 + "1" + ")" * 41 + " FROM pg_class")
    assert refused.value.sqlstate == "57014"
    monkeypatch.undo()
    for _ in range(children.CHILDREN + 1):
        assert rows(Catalogue(session()), "SELECT 1") == [1]
