"""Output that only a terminal gets: a real pseudo-terminal against a real pipe."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import TextIO

import pytest

from tidemark_cli.output.rows import RowPrinter, print_table
from tidemark_cli.output.terminal import show_elapsed_time

NAMES, ROWS = ("NAME", "HYDRATED"), [["a", "True"], ["longer than a terminal is wide " * 5, "[red]40%"]]
BOLD, GREEN = "\x1b[1m", "\x1b[32m"


def on_terminal(show: Callable[[TextIO], None]) -> str:
    """The text that is written to a terminal; less than its buffer holds."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as out:
        show(out)
    written = b""
    with os.fdopen(master, "rb", buffering=0) as terminal, suppress(OSError):  # as the end of a terminal is told
        while part := terminal.read(4096):
            written += part
    return written.decode().replace("\r\n", "\n")


def in_pipe(show: Callable[[TextIO], None]) -> str:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as out:
        show(out)
    with os.fdopen(reads) as written:
        return written.read()


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def table(out: TextIO) -> None:
    print_table(NAMES, ROWS, {"True": "green"}, out)


def rows(out: TextIO) -> None:
    printer = RowPrinter(["name", "n"], ["string", "bigint"], out)
    printer.print([["日本", "1"], ["ab", "10"]])
    printer.print([["longer", "2"]])


def test_a_table_in_a_pipe_is_plain_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says; lines are as long as they are, and data is no markup."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    width = len(ROWS[1][0])
    lines = [("NAME", "HYDRATED"), *ROWS]
    assert in_pipe(table) == "".join(f"{name:<{width}}  {cell}\n" for name, cell in lines)


def test_a_table_on_a_terminal_has_colours_unless_they_are_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is for that."""
    written = on_terminal(table)
    assert BOLD in written
    assert GREEN in written
    monkeypatch.setenv("NO_COLOR", "1")
    assert GREEN not in on_terminal(table)


def test_rows_are_aligned_by_their_width_on_a_terminal() -> None:
    """Characters of two columns count twice; a column grows with a later block."""
    plain = "name   n\n日本   1\nab    10\nlonger   2\n"
    assert in_pipe(rows) == plain
    written = on_terminal(rows)
    assert written.startswith(BOLD)
    assert written.replace(BOLD, "").replace("\x1b[0m", "") == plain


def test_waiting_shows_a_clock_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the place in the queue while that is told; it is gone when the wait is over."""

    def wait(out: TextIO) -> None:
        monkeypatch.setattr(sys, "stderr", out)
        with show_elapsed_time("copying to [x]") as describe:
            sleep(0.2)
            describe("waiting at place 3 of [8]")
        print("done", file=out)

    assert in_pipe(wait) == "done\n"
    written = on_terminal(wait)
    assert "copying to [x]" in written
    assert "waiting at place 3 of [8]" in written
    assert "0:00:00" in written
    assert written.endswith("\x1b[2Kdone\n")
