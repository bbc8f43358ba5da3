"""What the lowerings share: a lowered node is HIR plus the place of each of Spark's attributes in its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_planner.catalyst.json_tree import Node
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.sql.names import NamedRelation
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.types import SqlType


@dataclass(frozen=True)
class Lowered:
    """HIR whose output column n is Spark's attribute `attributes[n]`, called `names[n]`."""

    hir: Hir
    attributes: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> dict[int, ColumnRef]:
        return dict(zip(self.attributes, all_columns(self.hir), strict=True))

    def expression(self, node: Node) -> ScalarExpr:
        return lower_expression(node, self.columns)


Lower = Callable[[Node, "Context"], Lowered]
# The rows of an inline table, given the id of its first attribute and its columns' types; values as text or, where they
# are nested, as lists.
InlineRows = Callable[[int, Sequence[SqlType]], list[tuple[Any, ...]]]


@dataclass
class Context:
    """One query: its leaves by name, how to read inline tables, and what has been lowered on the way."""

    leaves: Mapping[str, NamedRelation]
    lowerings: Mapping[str, Lower]
    inline_rows: InlineRows
    object_id: Callable[[int], GlobalId]
    subqueries: Mapping[int, Node] = field(default_factory=dict)
    """The trees of the subqueries in expressions, by their ids."""
    ctes: dict[int, Lowered] = field(default_factory=dict)
    objects: list[tuple[GlobalId, Hir]] = field(default_factory=list)

    def lower(self, node: Node) -> Lowered:
        found = self.lowerings.get(node.kind)
        if found is None:
            unsupported(_WORDS.get(node.kind, node.kind))
        return found(node, self)

    def add_object(self, hir: Hir) -> GlobalId:
        """Compute `hir` once, as an object of the dataflow; its id."""
        name = self.object_id(len(self.objects))
        self.objects.append((name, hir))
        return name


# What users call the nodes that have no lowering.
_WORDS = {
    "RepartitionByExpression": "CLUSTER BY or DISTRIBUTE BY",
    "Pivot": "PIVOT",
    "UnionLoop": "WITH RECURSIVE",
    "ResolvedInlineTable": "the clock in VALUES",
}


def attributes_of(nodes: Sequence[Node]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Ids and names of a list of attributes or aliases."""
    return tuple(n.expr_id for n in nodes), tuple(n.name for n in nodes)
