"""Rows as a terminal shows them: columns aligned, numbers to the right, as kubectl and SQL shells do.

carrier  flights  avg_delay
UA         58665    3.55801
AA         32729   0.364290
"""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[str]
_GAP = "  "
_WIDEST = 60


class Table:
    """Aligns rows that come in blocks: a column keeps the width that its first block needed, or grows."""

    def __init__(self, names: Cells, right: Sequence[bool]) -> None:
        self._names, self._right = names, right
        self._widths = [len(name) for name in names]
        self._begun = False

    def block(self, rows: Sequence[Cells]) -> list[str]:
        """The lines of these rows, after the header if they are the first."""
        for row in rows:
            self._widths = [max(w, min(len(cell), _WIDEST)) for w, cell in zip(self._widths, row, strict=True)]
        lines = [] if self._begun else [self._line(self._names)]
        self._begun = True
        return lines + [self._line(row) for row in rows]

    def _line(self, cells: Cells) -> str:
        columns = zip(cells, self._widths, self._right, strict=True)
        return _GAP.join(c.rjust(w) if right else c.ljust(w) for c, w, right in columns).rstrip()


def printable(text: str) -> str:
    """One line of it: control characters would let data move the cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
