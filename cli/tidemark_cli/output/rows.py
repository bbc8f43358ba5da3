"""Rows as aligned columns, printed while they arrive: the one printer of tables.

carrier  flights  avg_delay
UA         58665    3.55801
AA         32729   0.364290

rich.table.Table holds all rows before it prints the first, and takes 80 times as long per row. Live tables (live.py)
are rich's: they hold what fits the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.cells import cell_len

from tidemark_cli.output import terminal
from tidemark_cli.output.text import printable

Cells = Sequence[str]
_GAP = "  "
_MAX_WIDTH = 60
"""The width of a cell, in columns of the terminal. A wider cell is printed whole, out of alignment."""
_NUMBERS = ("int", "bigint", "smallint", "tinyint", "float", "double", "decimal")


class RowPrinter:
    """Prints blocks of rows below one header. A column keeps the width of its widest cell so far."""

    def __init__(self, names: Cells, types: Cells, out: TextIO, styles: Mapping[str, str] | None = None) -> None:
        """`types`: those of SQL; columns of numbers are aligned to the right. `styles`: rich's, by the text of a cell;
        with them there is one block, and its cells are aligned however wide they are."""
        self._names, self._right = [printable(name) for name in names], [type.startswith(_NUMBERS) for type in types]
        self._widths = [_width(name) for name in self._names]
        self._out, self._begun, self._styles = out, False, styles or {}
        self._widest = _MAX_WIDTH if styles is None else terminal.NO_WRAP

    def print(self, rows: Sequence[Cells]) -> None:
        """Prints the rows, after the header if they are the first."""
        for row in rows:
            self._widths = [max(w, min(_width(cell), self._widest)) for w, cell in zip(self._widths, row, strict=True)]
        if not self._begun:
            heading = _GAP.join(self._padded(self._names)).rstrip()
            if self._out.isatty():
                terminal.print_styled([[(heading, "bold")]], self._out)
            else:
                print(heading, file=self._out)
        self._begun = True
        if self._styles and self._out.isatty():
            terminal.print_styled(
                ([(cell, self._styles.get(cell.strip(), "")) for cell in self._cells(r)] for r in rows), self._out
            )
        else:
            self._out.writelines(_GAP.join(self._padded(row)).rstrip() + "\n" for row in rows)

    def _cells(self, row: Cells) -> list[str]:
        *first, last = self._padded(row)
        return [*(cell + _GAP for cell in first), last.rstrip()]

    def _padded(self, cells: Cells) -> list[str]:
        columns = zip(cells, self._widths, self._right, strict=True)
        return [_padded(cell, width, right) for cell, width, right in columns]


def print_table(names: Cells, rows: Sequence[Cells], styles: Mapping[str, str], out: TextIO) -> None:
    """Prints a table that is known at once, as `kubectl get` does. `styles`: as of RowPrinter."""
    RowPrinter(names, [""] * len(names), out, styles).print(rows)


def _padded(cell: str, width: int, right: bool) -> str:
    padding = " " * (width - _width(cell))
    return padding + cell if right else cell + padding


def _width(text: str) -> int:
    """The width of a text, in columns of the terminal: some characters take two, some none."""
    return len(text) if text.isascii() else cell_len(text)
