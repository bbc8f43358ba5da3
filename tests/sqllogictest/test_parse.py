"""Files of sqllogictest as records, in the formats of several engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sqllogictest.parse import parse
from tests.sqllogictest.records import Let, Query, Reset, Statement, Unknown

Reader = Callable[[str], list[Any]]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    def records(text: str) -> list[Any]:
        path = tmp_path / "file.slt"
        path.write_bytes(text.encode())
        return list(parse(path))

    return records


def test_a_statement_and_a_query_as_sqlite_has_them(read: Reader) -> None:
    """With the place of each, whatever the line ends are."""
    statement, query = read(
        "hash-threshold 8\r\n\r\n# why\r\nstatement ok\r\nCREATE TABLE t(a)\r\n\r\n"
        "query I rowsort label-1\r\nSELECT a\r\nFROM t\r\n----\r\n1\r\n2\r\n"
    )
    assert (statement.sql, statement.expects, statement.place.line) == ("CREATE TABLE t(a)", "ok", 4)
    assert (query.sql, query.types, query.sort, query.label) == ("SELECT a\nFROM t", "I", "rowsort", "label-1")
    assert query.expected == ("1", "2")


def test_a_hash_is_a_number_and_a_digest(read: Reader) -> None:
    """And not a result of one line."""
    (query,) = read("query II\nSELECT a, b FROM t\n----\n30 values hashing to 3c13dee48d9356ae19af2515e05e6b54\n")
    assert query.hash == (30, "3c13dee48d9356ae19af2515e05e6b54")


@pytest.mark.parametrize(
    ("conditions", "there"),
    [
        ("skipif mysql", True),
        ("onlyif mysql", False),
        ("skipif tidemark", False),
        ("onlyif tidemark", True),
        ("skipif mysql\nskipif tidemark", False),
    ],
)
def test_conditions_are_of_one_record(read: Reader, conditions: str, there: bool) -> None:
    """The next one is there whatever they say."""
    found = read(f"{conditions} # a remark\nstatement ok\nfirst\n\nstatement ok\nsecond\n")
    assert [s.sql for s in found] == (["first", "second"] if there else ["second"])


def test_nothing_follows_a_halt(read: Reader) -> None:
    """Unless the halt is another engine's."""
    text = "statement ok\na\n\n{}halt\n\nstatement ok\nb\n"
    assert [s.sql for s in read(text.format(""))] == ["a"]
    assert [s.sql for s in read(text.format("onlyif mysql\n"))] == ["a", "b"]


def test_errors_and_counts(read: Reader) -> None:
    """The outcomes that a statement or a query should have instead of success."""
    first, second, third, fourth = read(
        "statement error no such table\nDROP TABLE x\n\nstatement count 2\nDELETE FROM t\n\n"
        "query error DIVIDE_BY_ZERO\nSELECT 1/0\n\nstatement error\nSELECT b FROM t\n----\nambiguous\n"
    )
    assert isinstance(first, Statement)
    assert (first.expects, first.message) == ("error", "no such table")
    assert second.count == 2
    assert isinstance(third, Query)
    assert third.error == "DIVIDE_BY_ZERO"
    assert (fourth.expects, fourth.message, fourth.sql) == ("error", "ambiguous", "SELECT b FROM t")


def test_rows_are_lines_in_cockroachs_mode(read: Reader) -> None:
    """With options after the types, in any order and divided by commas."""
    (query,) = read("mode cockroach\n\nquery IT colnames,partialsort(1)\nSELECT a, b FROM t\n----\na b\n1 x\n")
    assert (query.rows_are_lines, query.names, query.sort) == (True, True, "rowsort")


def test_a_multiline_result_goes_up_to_its_end_mark(read: Reader) -> None:
    """Empty lines are part of it."""
    query, statement = read("query T multiline\nEXPLAIN x\n----\na\n\nb\nEOF\n\nstatement ok\nc\n")
    assert query.expected[:3] == ("a", "", "b")
    assert statement.sql == "c"


def test_loops_repeat_their_records(read: Reader) -> None:
    """Also inside each other; the line is that of the file."""
    found = read("foreach t a b\n\nloop i 0 2\n\nstatement ok\nx ${t} ${i}\n\nendloop\n\nendloop\n\nstatement ok\ny\n")
    assert [s.sql for s in found] == ["x a 0", "x a 1", "x b 0", "x b 1", "y"]
    assert found[3].place.line == 5


def test_simple_blocks_are_statements_with_a_wanted_effect(read: Reader) -> None:
    """The other engine's message is not compared."""
    found = read("simple conn=a,user=b\nINSERT INTO t VALUES (';');\nBEGIN;\n----\nCOMPLETE 1\nCOMPLETE 0\n")
    assert [(s.sql, s.expects) for s in found] == [("INSERT INTO t VALUES (';')", "maybe"), ("BEGIN", "maybe")]


def test_an_unknown_record_is_named(read: Reader) -> None:
    """A block of another format is one record; what follows is read on."""
    unknown, statement = read("copy t\n1 2\n\nstatement ok\na\n")
    assert isinstance(unknown, Unknown)
    assert "copy" in unknown.reason
    assert statement.sql == "a"


def test_a_query_without_a_result_is_only_run(read: Reader) -> None:
    """An empty result has the mark and nothing below it."""
    run, empty = read("query I\nSELECT a FROM t\n\nquery I\nSELECT a FROM t\n----\n")
    assert (run.checked, empty.checked) == (False, True)


def test_retry_clauses_and_connections_are_no_label(read: Reader) -> None:
    """Nor is a connection, which statements and queries may name; both may stand for themselves."""
    first, second, third, fourth = read(
        "query I retry 3 backoff 5s\nSELECT 1\n----\n1\n\nquery I con1\nSELECT 1\n----\n1\n\n"
        "connection other\n\nstatement ok\nBEGIN\n\nstatement error con2\nx\n"
    )
    assert (first.label, first.connection) == ("", "")
    assert (second.label, second.connection) == ("", "con1")
    assert third.connection == "other"
    assert (fourth.connection, fourth.message) == ("con2", "")


def test_a_message_may_have_paragraphs(read: Reader) -> None:
    """They end where two lines are empty, or a record begins."""
    first, second, third = read(
        "query error\nSELECT 1/0\n----\nfailed\n\ncaused by: zero\n\n\n"
        "statement error\nx\n----\nwrong\n\nstatement ok\ny\n"
    )
    assert (first.error, second.message, third.sql) == ("failed\ncaused by: zero", "wrong", "y")


def test_files_are_included_where_they_are_named(read: Reader, tmp_path: Path) -> None:
    """By patterns beside the file; what is not there is said."""
    (tmp_path / "part.1").write_text("statement ok\na\n")
    (tmp_path / "part.2").write_text("statement ok\nb\n")
    first, second, third, unknown = read("include ./part.*\n\nstatement ok\nc\n\ninclude missing\n")
    assert [first.sql, second.sql, third.sql] == ["a", "b", "c"]
    assert first.place.file.name == "part.1"
    assert isinstance(unknown, Unknown)


def test_loops_have_named_values_and_conditions(read: Reader) -> None:
    """The conditions are of DuckDB's format: all integers but one, and a record of one round only."""
    found = read(
        "foreach type <signed> !hugeint\n\nonlyif type=bigint\nstatement ok\nonly ${type}\n\n"
        "statement ok\n${type}\n\nendloop\n"
    )
    assert [s.sql for s in found] == ["tinyint", "smallint", "integer", "only bigint", "bigint"]


def test_values_are_asked_for_by_name(read: Reader) -> None:
    """`let` has a query of its own; an engine that begins anew has nothing left."""
    named, anew = read("let (a, b)\nSELECT 1, 2\n\nreset-server\n")
    assert (named, type(anew)) == (Let(named.place, "SELECT 1, 2", ("a", "b")), Reset)
