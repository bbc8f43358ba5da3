"""A table on a terminal that is drawn anew where it changed, on a screen of its own.

    change ──► `changed()` ──► at most four times a second: `frame(lines)` ──► the terminal

It is drawn anew as well where the terminal's size changed. However the block is left, the terminal gets its own screen
and its cursor back, and the last frame is printed below what was there before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark_cli.output.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REFRESH_SECONDS = 0.25
_LINES_BESIDE = 3
"""The heading, the footer, and the line of the cursor."""


@dataclass(frozen=True)
class ScreenFrame:
    """`rows`: cells as texts, which are escaped here; those that fit. `styles`: rich's, by the text of a cell;
    `marked`: positions of rows that are bold."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    footer: str
    styles: Mapping[str, str] = field(default_factory=dict)
    marked: frozenset[int] = frozenset()
    right: Sequence[bool] = ()
    """True for each column that is aligned to the right; empty: for none."""


def is_possible() -> bool:
    """Whether standard output is a terminal on which a table can be live."""
    from rich.console import Console

    return sys.stdout.isatty() and not Console(file=sys.stdout).is_dumb_terminal


@contextmanager
def live_table(frame: Callable[[int], ScreenFrame]) -> Iterator[Callable[[], None]]:
    """Shows the table while the block lasts. The block gets `changed`, to call from any thread.

    `frame`: the table, with at most so many rows. It is called in a thread of its own; what it raises there, `changed`
    and the end of the block raise.
    """
    from rich.console import Console
    from rich.live import Live

    console, stale, ended = Console(file=sys.stdout), threading.Event(), threading.Event()
    failures: list[Exception] = []

    def refresh(live: Live) -> None:
        size = None
        try:
            while not ended.wait(REFRESH_SECONDS):
                if stale.is_set() or console.size != size:
                    stale.clear()
                    size = console.size
                    live.update(_drawn(frame(_fitting(console))), refresh=True)
        except Exception as error:
            failures.append(error)

    def changed() -> None:
        if failures:
            raise failures[0]
        stale.set()

    screen = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    try:
        with screen as live:
            thread = threading.Thread(target=refresh, args=(live,), name="live table", daemon=True)
            thread.start()
            try:
                yield changed
            finally:
                ended.set()
                thread.join()
            changed()
    finally:
        console.print(_drawn(frame(_fitting(console))))


def _fitting(console: Console) -> int:
    return max(1, console.size.height - _LINES_BESIDE)


def _drawn(frame: ScreenFrame) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for at, name in enumerate(frame.names):
        is_right = bool(frame.right) and frame.right[at]
        table.add_column(Text(printable(name)), no_wrap=True, justify="right" if is_right else "left")
    for at, row in enumerate(frame.rows):
        style = "bold" if at in frame.marked else ""
        table.add_row(*(Text(printable(cell), style=frame.styles.get(cell, style)) for cell in row))
    return Group(table, Text(printable(frame.footer), style="dim", no_wrap=True, overflow="ellipsis"))
