"""The progress of a hydration on a replica, in percent: the whole, and each operator.

    Status hydration {state: hydrating, percent: 42, operators: [["read lineitem", 80], ["join", 40]]}

It is shown and nothing else depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class HydrationProgress:
    """`operators`: names and percentages, each operator behind those that it reads."""

    percent: int
    operators: tuple[tuple[str, int], ...] = ()


def hydration_progress(fields: Mapping[str, str]) -> HydrationProgress | None:
    """The progress in the fields of a status; None where it is not a hydration, or of an image with another format."""
    if fields.get("state") != "hydrating":
        return None
    try:
        operators = tuple((str(name), int(percent)) for name, percent in json.loads(fields.get("operators", "[]")))
        return HydrationProgress(int(fields["percent"]), operators)
    except (KeyError, TypeError, ValueError):
        return None
