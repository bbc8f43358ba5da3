"""Values of an answer, as a table shows them.

Arrow ──► Python ──► cell(value)     one line of text: NULL, true, 0.00, NaN
"""

from __future__ import annotations

import json
from typing import Any

from tidemark_cli.output.text import printable
from tidemark_protocol.rows.values import plain


def cell(value: Any) -> str:
    """The value as one line of text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return printable(json.dumps(plain(value), ensure_ascii=False))
    return printable(str(plain(value)))
