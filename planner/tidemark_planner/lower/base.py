"""Types that all lowerings share: `Lowered` (HIR, and the Spark attribute of each output column) and `Context` (one
query)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_planner.catalyst.json_tree import CatalystNode, walk
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
    """HIR whose output column n is Spark's attribute `attributes[n]`, with the name `names[n]`."""

    hir: Hir
    attributes: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> dict[int, ColumnRef]:
        return dict(zip(self.attributes, all_columns(self.hir), strict=True))

    def expression(self, node: CatalystNode) -> ScalarExpr:
        return lower_expression(node, self.columns)


Lower = Callable[[CatalystNode, "Context"], Lowered]
# The rows of an inline table, by the id of its first attribute and the types of its columns. Values are texts, or lists
# of texts where they are nested.
InlineRows = Callable[[int, Sequence[SqlType]], list[tuple[Any, ...]]]


@dataclass
class Context:
    """One query: its declared relations by name, how to read inline tables, and the objects and common table
    expressions lowered so far.
    """

    leaves: Mapping[str, NamedRelation]
    lowerings: Mapping[str, Lower]
    inline_rows: InlineRows
    object_id: Callable[[int], GlobalId]
    subqueries: Mapping[int, CatalystNode] = field(default_factory=dict)
    """The trees of the subqueries in expressions, by id."""
    ctes: dict[int, Lowered] = field(default_factory=dict)
    objects: list[tuple[GlobalId, Hir]] = field(default_factory=list)

    def lower(self, node: CatalystNode) -> Lowered:
        """The lowered node; raises Refusal where the kind of node has no lowering."""
        found = self.lowerings.get(node.kind)
        if found is None:
            unsupported(*_CONSTRUCTS.get(node.kind, (f"the operator {node.kind}", "write the query without it")))
        return found(node, self)

    def add_object(self, hir: Hir) -> GlobalId:
        """Make `hir` an object of the dataflow, which is computed once; returns its id."""
        name = self.object_id(len(self.objects))
        self.objects.append((name, hir))
        return name


# The SQL words for nodes without a lowering, and what to write instead.
_CONSTRUCTS = {
    "RepartitionByExpression": ("CLUSTER BY or DISTRIBUTE BY", "leave it out: rows have no place"),
    "Pivot": ("PIVOT", "write an aggregate with FILTER (WHERE ...) per column"),
    "UnionLoop": ("WITH RECURSIVE in this place", "write it at the beginning of the query"),
    "ResolvedInlineTable": ("the clock or the user in VALUES", "compare now() with a column in a filter"),
}


def attributes_of(nodes: Sequence[CatalystNode]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Ids and names of a list of attributes or aliases."""
    return tuple(n.expr_id for n in nodes), tuple(n.name for n in nodes)


_OUTPUTS = ("projectList", "aggregateExpressions", "windowExpressions")


def unnamed_columns(tree: CatalystNode) -> frozenset[str]:
    """The names that Spark made of expressions without an alias, such as `(k + 1)`."""
    outputs = (output for node in walk(tree) for field in _OUTPUTS for output in node.expressions(field))
    # Spark marks the aliases that it makes; a user's alias has no metadata of its own.
    return frozenset(o.name for o in outputs if o.kind == "Alias" and "explicitMetadata" in o.fields)
