"""Amounts of cores and memory as manifests write them."""

from __future__ import annotations

import re

from tidemark_operator.resources.manifest.errors import InvalidValue, WrongType
from tidemark_operator.resources.manifest.fields import Fields

_UNIT = {"Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_MEMORY = re.compile(r"([0-9]+)(Mi|Gi|Ti)")
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
    """An amount of memory, from 1Gi to 1Ti."""
    return size_bytes(fields, name, default, ("1Gi", "1Ti"))


def size_bytes(fields: Fields, name: str, default: str, bounds: tuple[str, str]) -> int:
    """A number of bytes, written in Mi, Gi or Ti; refused outside of the bounds."""
    text = fields.text(name, default)
    amount, (least, most) = _bytes(text), map(_bytes, bounds)
    if amount is None or least is None or most is None:
        raise InvalidValue(fields.at(name), f"must be an amount such as 2Gi or 1536Mi, not {text!r:.40}")
    if not least <= amount <= most:
        raise InvalidValue(fields.at(name), f"must be from {bounds[0]} to {bounds[1]}, not {text}")
    return amount


def _bytes(text: str) -> int | None:
    match = _MEMORY.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT[match[2]]
