"""Amounts of memory and disk as manifests write them."""

from __future__ import annotations

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields

_UNIT = {"Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def size_bytes(fields: Fields, name: str, default: str) -> int:
    """A number of bytes, written in Mi, Gi or Ti. Raises InvalidValue."""
    text = fields.text(name, default)
    amount, unit = text[:-2], _UNIT.get(text[-2:])
    if unit is None or not amount.isdecimal():
        raise InvalidValue(fields.at(name), f"must be an amount such as 2Gi or 1536Mi, not {text!r:.40}")
    return int(amount) * unit
