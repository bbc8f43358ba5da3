"""Rows as aligned columns, printed while they arrive.

carrier  flights  avg_delay
UA         58665    3.55801
AA         32729   0.364290

rich.table.Table holds all rows before it prints the first, and takes 80 times as long per row. It prints the tables
that are known at once: `frontiers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len

from tidemark_cli.output import terminal

Cells = Sequence[str]
_GAP = "  "
_MAX_WIDTH = 60
"""In columns of the terminal. A wider cell is printed whole, out of alignment."""
_NUMBERS = ("int", "bigint", "smallint", "tinyint", "float", "double", "decimal")


class RowPrinter:
    """Prints blocks of rows below one header. A column keeps the width of its widest cell so far."""

    def __init__(self, names: Cells, types: Cells, out: TextIO) -> None:
        """`types`: those of SQL; columns of numbers are aligned to the right."""
        self._names, self._right = names, [type.startswith(_NUMBERS) for type in types]
        self._widths = [_width(name) for name in names]
        self._out, self._begun = out, False

    def print(self, rows: Sequence[Cells]) -> None:
        """Prints the rows, after the header if they are the first."""
        for row in rows:
            self._widths = [max(w, min(_width(cell), _MAX_WIDTH)) for w, cell in zip(self._widths, row, strict=True)]
        if not self._begun:
            terminal.print_heading(self._line(self._names), self._out)
        self._begun = True
        self._out.writelines(self._line(row) + "\n" for row in rows)

    def _line(self, cells: Cells) -> str:
        columns = zip(cells, self._widths, self._right, strict=True)
        return _GAP.join(_padded(cell, width, right) for cell, width, right in columns).rstrip()


def _padded(cell: str, width: int, right: bool) -> str:
    padding = " " * (width - _width(cell))
    return padding + cell if right else cell + padding


def _width(text: str) -> int:
    """In columns of the terminal: some characters take two, some none."""
    return len(text) if text.isascii() else cell_len(text)
