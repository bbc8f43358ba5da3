"""Output that only a terminal gets: bold headings, colours, and a clock while a command waits.

Output to a file or a pipe has none of it, whatever the environment says. rich heeds NO_COLOR and TERM on terminals.
rich is imported where it is used, so that other output does not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

NO_WRAP = 100_000
"""Columns of the terminal, so that rich neither wraps nor cuts lines: the terminal does."""


def print_styled(lines: Iterable[Sequence[tuple[str, str]]], out: TextIO) -> None:
    """Prints lines of a terminal: each of parts, which are a text and rich's style of it."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, width=NO_WRAP, force_terminal=True, highlight=False)
    for parts in lines:
        console.print(Text.assemble(*parts), soft_wrap=True)


@contextmanager
def show_elapsed_time(description: str) -> Iterator[Callable[[str], None]]:
    """Shows the description and the time that passes, on standard error, until the block ends.

    The block gets a function that replaces the description. It shows nothing where standard error is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda changed: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=None)
        yield lambda changed: progress.update(task, description=changed)
