"""How the error of an expression stands in `__error`."""

from __future__ import annotations

import json

from tidemark_protocol.lir import ErrorValue


def error_json(error: ErrorValue) -> str:
    """How an error stands in `__error`."""
    return json.dumps({"code": error.code, "expression": error.expression}, sort_keys=True, ensure_ascii=False)
