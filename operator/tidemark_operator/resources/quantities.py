"""Amounts of cores and memory as manifests write them."""

from __future__ import annotations

import re

from tidemark_operator.resources.errors import InvalidValue, WrongType
from tidemark_operator.resources.fields import Fields

_UNIT = {"Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_MEMORY = re.compile(r"([0-9]+)(Mi|Gi|Ti)")
_LEAST_MEMORY, _MOST_MEMORY = 1 << 30, 1 << 40
_MOST_CORES = 256


def cores(fields: Fields, name: str, default: int) -> int:
    """Whole cores, written 2 or "2"."""
    value = fields.values.get(name)
    value = default if value is None else value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(fields.at(name), "a whole number of cores", value)
    if not 1 <= value <= _MOST_CORES:
        raise InvalidValue(fields.at(name), f"must be from 1 to {_MOST_CORES} cores, not {value}")
    return value


def memory_bytes(fields: Fields, name: str, default: str) -> int:
    """An amount of memory in bytes, written in Mi, Gi or Ti."""
    text = fields.text(name, default)
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise InvalidValue(fields.at(name), f"must be an amount such as 2Gi or 1536Mi, not {text!r:.40}")
    amount = int(match[1]) * _UNIT[match[2]]
    if not _LEAST_MEMORY <= amount <= _MOST_MEMORY:
        raise InvalidValue(fields.at(name), f"must be from 1Gi to 1Ti, not {text}")
    return amount
