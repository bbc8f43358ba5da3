"""Catalyst's trees as Spark prints them in JSON, read back into nodes.

Spark writes a tree as a list of nodes, parents first, each saying how many children follow. Fields that hold
expressions or plans are such lists themselves (a Filter's `condition`); a field may also hold the positions of
children (`"left": 0`), which we do not need: `children` are in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark_planner.errors import CatalystFailed

# A node between the steps of `FROM t |> WHERE x |> LIMIT 3` that carries no information.
_PASSED_OVER = "PipeOperator"


@dataclass(frozen=True)
class CatalystNode:
    """A node: the short name of its Scala class, its fields, and its children in order."""

    kind: str
    fields: dict[str, Any]
    children: tuple[CatalystNode, ...]

    def expressions(self, field: str) -> tuple[CatalystNode, ...]:
        """The trees in a field that holds a list of expressions."""
        return tuple(e if isinstance(e, CatalystNode) else parse_tree(e) for e in self.fields.get(field, ()))

    def expression(self, field: str) -> CatalystNode | None:
        """The tree in a field that holds one expression; None where the field is empty."""
        raw = self.fields.get(field)
        if isinstance(raw, CatalystNode):
            return raw
        return parse_tree(raw) if isinstance(raw, list) and raw else None

    @property
    def expr_id(self) -> int:
        """Catalyst's id of an attribute or alias."""
        return int(self.fields["exprId"]["id"])

    @property
    def name(self) -> str:
        return str(self.fields["name"])


def parse_tree(nodes: list[dict[str, Any]]) -> CatalystNode:
    """The tree that a list of nodes spells, parents first; raises CatalystFailed."""
    rest = iter(nodes)
    built = _next(rest)
    if next(rest, None) is not None:
        raise CatalystFailed("a tree from Catalyst has nodes that belong to no parent")
    return built


def _next(rest: Any) -> CatalystNode:
    raw = next(rest, None)
    if raw is None:
        raise CatalystFailed("a tree from Catalyst ends before all children were read")
    children = tuple(_next(rest) for _ in range(raw["num-children"]))
    kind = raw["class"].rsplit(".", 1)[-1]
    return children[0] if kind == _PASSED_OVER else CatalystNode(kind, raw, children)


def walk(node: CatalystNode) -> list[CatalystNode]:
    """The node and all below it, parents first."""
    found, pending = [], [node]
    while pending:
        at = pending.pop()
        found.append(at)
        pending.extend(reversed(at.children))
    return found
