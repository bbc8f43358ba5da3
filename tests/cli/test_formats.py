"""The forms of `-o`: each command's rows in each of them, read back by libraries that others wrote."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.test_commands import ROWS, Scripted, gateway
from tests.cli.test_subscribe import gateway as subscribes
from tests.waiting import BOUND
from tidemark_cli.main import main
from tidemark_cli.output.formats import document, lines

__all__ = ["gateway", "subscribes"]
EVIL = "\x1b]0;title\x07\x1b[2J\x9b1m\u202e\r\n\x85"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.sampled_from([EVIL, "", "1e3"])
LISTINGS = [
    (["frontiers"], "collections"),
    (["files", "drop"], "files"),
    (["tables", "--retained"], "tables"),
    (["why", "delays"], "causes"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_document(output: str, rows: list[tuple[Any, ...]], out: io.StringIO | None = None) -> str:
    out = out or io.StringIO(newline="")
    writer = document(output, ["a", "b"], ["string", "string"], {"as_of": 7, "export": None}, out)
    writer.rows(rows)
    writer.end()
    return out.getvalue()


@given(st.lists(st.tuples(VALUES, VALUES), max_size=5))
def test_documents_are_read_back_as_they_were(rows: list[tuple[Any, ...]]) -> None:
    """JSON and YAML say the same; neither has a control character, whatever the data are."""
    expected = {"as_of": 7, "export": None, "rows": [dict(zip("ab", row, strict=True)) for row in rows]}
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        text = as_document(output, rows)
        assert text.isascii()
        assert not CONTROL.search(text)
        assert read(text) == expected


@given(st.lists(st.tuples(VALUES, VALUES), max_size=5))
def test_csv_is_read_back_and_null_is_no_empty_text(rows: list[tuple[Any, ...]]) -> None:
    """RFC 4180: lines end with CR LF, quotes are doubled. PostgreSQL's COPY reads nothing as NULL and "" as a text."""
    text = as_document("csv", rows)
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert read[0] == ["a", "b"]
    shown = [["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in row] for row in rows]
    assert read[1:] == shown
    assert as_document("csv", [(None, None), ("", "")]).splitlines()[1:] == [",", '"",""']


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5))
@pytest.mark.parametrize("output", ["table", "csv"])
def test_no_value_moves_a_terminals_cursor(output: str, rows: list[tuple[Any, ...]]) -> None:
    """A row is a line, of characters that can be seen; CSV in a pipe is exact."""
    text = as_document(output, rows, Terminal(newline="")).replace("\x1b[1m", "").replace("\x1b[0m", "")
    printed = text.replace("\r\n", "\n").splitlines(keepends=True)
    assert len(printed) == len(rows) + 1
    assert all(line.endswith("\n") and line[:-1].isprintable() for line in printed)


@pytest.mark.parametrize(
    "word", ["no", "y", "on", "1e3", "0x1F", "1_000", "2026-01-31", "~", "null", "=", "<<", "a: b"]
)
def test_texts_stay_texts_in_any_version_of_yaml(word: str) -> None:
    """Readers of 1.1 and of 1.2 take other words for booleans and numbers; quotes leave them no choice. Keys too."""
    out = io.StringIO()
    lines("yaml", [word], ["string"], out).rows([[word]])
    assert yaml.safe_load(out.getvalue()) == [{word: word}]
    assert out.getvalue() == f"- {json.dumps(word)}: {json.dumps(word)}\n"


@pytest.mark.parametrize(("words", "field"), LISTINGS, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_each_listing_has_each_form(
    gateway: Scripted, capsys: pytest.CaptureFixture[str], words: list[str], field: str
) -> None:
    printed = {}
    for output in ("json", "yaml", "csv"):
        assert main([*words, "-o", output]) == 0
        printed[output] = capsys.readouterr().out
    found = json.loads(printed["json"])
    assert yaml.safe_load(printed["yaml"]) == found
    rows = list(csv.DictReader(io.StringIO(printed["csv"], newline="")))
    if field == "causes":
        assert [(row["depth"], row["subject"], row["holds"]) for row in rows] == [
            ("0", "delays", "true"),
            ("1", "s.t", "true"),
            ("1", "replica r1", "false"),
            ("0", "new", "false"),
        ]
        assert rows[-1]["write"] == ""
        return
    assert len(rows) == len(found[field])
    for row, message in zip(rows, found[field], strict=True):
        assert row.keys() >= message.keys()
        assert all(row[name] == value for name, value in message.items() if isinstance(value, str))


def test_an_answer_has_each_form(gateway: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT 1", "-o", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out == "carrier,flights,late\r\nUA,58665,3.50\r\n,32729,\r\nevil\x1b[2J,1,0.00\r\n"
    assert "(3 rows of delays" in err
    assert main(["query", "SELECT 1", "-o", "yaml"]) == 0
    answer = yaml.safe_load(capsys.readouterr().out)
    assert (answer["as_of"], answer["export"]) == (1000, "delays")
    assert [row["carrier"] for row in answer["rows"]] == ROWS.column("carrier").to_pylist()


def test_changes_have_each_form(subscribes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream in YAML is a list that goes on; CSV has times as numbers."""
    assert main(["subscribe", "delays", "-o", "yaml", "--progress"]) == 0
    items = yaml.safe_load(capsys.readouterr().out)
    assert items[0] == {"__time": 1000, "__diff": 1, "name": "a", "n": 1}
    assert items[-2:] == [{"__progress": 3000}, {"__progress": None}]
    assert main(["subscribe", "delays", "-o", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "__time,__diff,name,n",
        "1000,1,a,1",
        "1000,1,b,2",
        "1000,1,c,3",
        "2000,-1,a,1",
    ]


def test_an_outcome_has_each_form(subscribes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    copy = ["copy", "delays", "--to", "x", "--format", "csv", "-o"]
    assert main([*copy, "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["rows"] == 1
    assert main([*copy, "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["as_of,rows,location", "1000,1,/data/default/_copies/x"]


@pytest.fixture
def environment(gateway: Scripted, tmp_path: Path) -> dict[str, str]:
    """The environment of a program that finds the gateway."""
    return {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "TERM": "xterm-256color", "COLUMNS": "80"}


def on_terminal(environment: dict[str, str], *words: str) -> str:
    """The output of the program on a pseudo-terminal, which it has for all three streams."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "tidemark_cli", *words]
    with subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave) as program:
        os.close(slave)
        written = b"".join(_parts(master))
        assert program.wait(BOUND) == 0, written
    return written.decode()


def _parts(master: int) -> Iterator[bytes]:
    with os.fdopen(master, "rb", buffering=0) as terminal, suppress(OSError):  # as the end of a terminal is told
        while part := terminal.read(4096):
            yield part


def test_a_terminal_has_colours_unless_no_color_is_set(environment: dict[str, str]) -> None:
    """And a value's own sequence is text on it."""
    assert "\x1b[33mFalse" in on_terminal(environment, "frontiers")
    plain = on_terminal({**environment, "NO_COLOR": "1"}, "frontiers")
    assert "False" in plain
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)
    written = on_terminal(environment, "query", "SELECT 1")
    assert r"evil\x1b[2J" in written
    assert "evil\x1b" not in written


@pytest.mark.parametrize("output", ["table", "json", "csv", "yaml"])
def test_a_reader_that_ends_first_is_no_error(environment: dict[str, str], output: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "tidemark_cli", "query", "SELECT 1", "-o", output]
    with os.fdopen(writes, "w") as out:
        done = subprocess.run(
            command, env=environment, stdout=out, stderr=subprocess.PIPE, text=True, timeout=BOUND, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
