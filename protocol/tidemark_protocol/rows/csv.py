"""Rows as CSV of RFC 4180, as the command line and HTTP write them.

NULL is nothing, an empty text is `""`. Arrays and structs are their JSON. Lines end with CR LF.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidemark_protocol.rows.values import plain


def csv_line(row: Sequence[Any]) -> str:
    """The row with the end of its line. A row of one NULL is an empty line."""
    return ",".join(map(_field, row)) + "\r\n"


def _field(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list() | dict():
            text = json.dumps(plain(value), ensure_ascii=False)
        case _:
            text = str(plain(value))
    if not text or any(c in text for c in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
