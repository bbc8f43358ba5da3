"""Durations as manifests write them: `100ms`, `60s`, `1h30m`. Whole milliseconds, never a fraction."""

from __future__ import annotations

import re

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import REQUIRED, Fields, Required

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_PART = re.compile(r"([0-9]+)(ms|s|m|h)")
_WHOLE = re.compile(r"(?:[0-9]+(?:ms|s|m|h))+")


def duration_ms(fields: Fields, name: str, default: str | Required = REQUIRED) -> int:
    """The duration at `name` in milliseconds. Raises InvalidValue."""
    text = fields.text(name, default)
    if not _WHOLE.fullmatch(text):
        raise InvalidValue(fields.at(name), f"must be a duration such as 500ms, 60s or 1h30m, not {text!r:.40}")
    return sum(int(count) * _UNIT_MS[unit] for count, unit in _PART.findall(text))


def duration_text(ms: int) -> str:
    """The shortest way to write a duration: 90000 is 1m30s."""
    parts = []
    for unit in ("h", "m", "s", "ms"):
        count, ms = divmod(ms, _UNIT_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
