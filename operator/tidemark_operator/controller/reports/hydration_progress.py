"""How far a hydration is on a replica, as that says: in percent, and operator by operator.

    Status hydration {state: hydrating, percent: 42, operators: [["read lineitem", 80], ["join", 40]]}

Nothing depends on it, and what cannot be true is not believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_operator.controller.reports.status_validation import sendable_name

MOST_OPERATORS = 64
MOST_NAME = 128


@dataclass(frozen=True, order=True)
class Hydrating:
    """`operators` and their percentages, each behind what it reads."""

    percent: int
    operators: tuple[tuple[str, int], ...] = ()


def hydrating(fields: Mapping[str, str]) -> Hydrating | None:
    """What the fields of the status say; None where that is nothing, or nonsense."""
    if fields.get("state") != "hydrating":
        return None
    try:
        percent = int(fields["percent"])
        told = json.loads(fields.get("operators", "[]"))
        operators = tuple((sendable_name(name, MOST_NAME), int(at)) for name, at in told)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    sensible = all(0 <= each <= 100 for each in (percent, *(at for _, at in operators)))
    return Hydrating(percent, operators[:MOST_OPERATORS]) if sensible else None
