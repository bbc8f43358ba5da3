"""The text of an error in the column `__error`."""

from __future__ import annotations

import json


def error_text(code: str, expression: str) -> str:
    """The JSON text of an error: a code and an expression or a place, never data. Equal failures have equal texts."""
    value = {"code": code, "expression": expression}
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def readable_error(error: str) -> str:
    """An `__error` as text for people; other texts are returned as they are."""
    try:
        texts = json.loads(error)
        place = f" in {texts['expression']}" if texts.get("expression") else ""
        return f"{texts['code']}{place}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return error
