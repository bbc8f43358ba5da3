"""What each operator of a dataflow keeps and has cost on a replica, as that says.

    Status operators {operators: [["join", "Join", 81920, 3, 1310720, 420], ...]}
                                   name    kind    rows   batches  bytes  milliseconds

Nothing depends on it, and what cannot be true is not believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_operator.controller.reports.status_validation import sendable_name

MOST_OPERATORS, MOST_NAME, MOST_DIGITS = 64, 128, 18


@dataclass(frozen=True)
class OperatorWork:
    """`elapsed_ms` of all its tasks together, since the dataflow was rendered."""

    name: str
    kind: str
    records: int
    batches: int
    bytes: int
    elapsed_ms: int


def operators(fields: Mapping[str, str]) -> tuple[OperatorWork, ...]:
    """What the fields of the status say, in the order of the plan; nothing where that is nonsense."""
    try:
        told = json.loads(fields.get("operators", "[]"))[:MOST_OPERATORS]
        found = [(_name(name), _name(kind), [int(number) for number in numbers]) for name, kind, *numbers in told]
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        return ()
    if any(len(numbers) != 4 or not all(0 <= n < 10**MOST_DIGITS for n in numbers) for _, _, numbers in found):
        return ()
    return tuple(OperatorWork(name, kind, *numbers) for name, kind, numbers in found)


def _name(said: object) -> str:
    return sendable_name(said, MOST_NAME)
