"""State and cost of each operator of a dataflow on a replica.

    Status operators {operators: [["join", "Join", 81920, 3, 1310720, 420], ...]}
                                   name    kind    rows   batches  bytes  milliseconds

It is shown and nothing else depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.explained_plan import PlaceInPlan


@dataclass(frozen=True)
class OperatorCost:
    """`records`, `batches`, `bytes`: of its arrangements; `elapsed_ms`: of all its tasks since it was rendered."""

    name: str
    kind: str
    records: int
    batches: int
    bytes: int
    elapsed_ms: int


def operator_costs(fields: Mapping[str, str]) -> tuple[OperatorCost, ...]:
    """The costs in the fields of a status, in the order of the plan; empty for an image with another format."""
    try:
        rows = json.loads(fields.get("operators", "[]"))
        return tuple(OperatorCost(str(name), str(kind), *map(int, numbers)) for name, kind, *numbers in rows)
    except (TypeError, ValueError):
        return ()


def operator_nodes(fields: Mapping[str, str]) -> tuple[PlaceInPlan | None, ...]:
    """The nodes of the plan that the operators are of, in the order of `operator_costs`; empty for an image that tells
    none."""
    try:
        nodes = json.loads(fields.get("nodes", "[]"))
        return tuple(None if node is None else (int(node[0]), int(node[1])) for node in nodes)
    except (IndexError, TypeError, ValueError):
        return ()


def operator_channels(fields: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """The channels in the fields of a status: (from, to), as positions in `operator_costs`; empty for an image that
    reports none."""
    try:
        return tuple((int(begin), int(end)) for begin, end in json.loads(fields.get("channels", "[]")))
    except (TypeError, ValueError):
        return ()
