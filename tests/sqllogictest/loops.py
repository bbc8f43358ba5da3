"""Loops of DuckDB's format: the values of their variables, and conditions on them.

loop i 0 3                       i = 0, 1, 2
foreach type <integral> !uint8   type = tinyint, smallint, integer, ...
onlyif type=integer              a condition of the record that follows
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

MOST_ROUNDS = 200
_SIGNED = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_UNSIGNED = ("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint")
_NUMERIC = (*_SIGNED, *_UNSIGNED, "float", "double")
_NAMED = {
    "<signed>": _SIGNED,
    "<unsigned>": _UNSIGNED,
    "<integral>": (*_SIGNED, *_UNSIGNED),
    "<numeric>": _NUMERIC,
    "<alltypes>": (*_NUMERIC, "bool", "interval", "varchar"),
}
_CONDITION = re.compile(r"(\w+)\s*(<>|!=|>=|<=|=|<|>)\s*(\S+)")
_COMPARED: Mapping[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


def values_of(kind: str, words: Sequence[str]) -> list[str]:
    """The values of a loop's variable, round after round."""
    if kind.endswith("loop") and len(words) == 2 and all(w.lstrip("-").isdigit() for w in words):
        return [str(i) for i in range(int(words[0]), int(words[1]))][:MOST_ROUNDS]
    without = {w[1:].lower() for w in words if w.startswith("!")}
    found = [v for w in words if not w.startswith("!") for v in _NAMED.get(w.lower(), (w,))]
    return [v for v in found if v.lower() not in without][:MOST_ROUNDS]


def substituted(line: str, name: str, value: str) -> str:
    """The line with the value of a loop's variable; `a,b` are two variables at once."""
    for part, own in zip(name.split(","), value.split(",") if "," in name else [value], strict=False):
        line = line.replace("${" + part + "}", own).replace("{" + part + "}", own)
    return line


def holds(condition: str, variables: Mapping[str, str]) -> bool | None:
    """Whether a condition on a loop's variable is true; None if it is none."""
    found = _CONDITION.fullmatch(condition)
    if not found or found[1] not in variables:
        return None
    left, right = variables[found[1]], found[3]
    if left.isdigit() and right.isdigit():
        return _COMPARED[found[2]](int(left), int(right))
    return _COMPARED[found[2]](left, right)
