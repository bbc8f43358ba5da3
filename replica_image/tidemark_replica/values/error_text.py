"""How an error stands in `__error`: the one form, whoever finds it."""

from __future__ import annotations

import json


def error_text(code: str, expression: str) -> str:
    """The same text for the same failure: a code and an expression or place, never data."""
    value = {"code": code, "expression": expression}
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def readable_error(error: str) -> str:
    """An `__error` as people read it; also one that is not of the form above."""
    try:
        texts = json.loads(error)
        place = f" in {texts['expression']}" if texts.get("expression") else ""
        return f"{texts['code']}{place}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return error
