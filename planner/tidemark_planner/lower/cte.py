"""Common table expressions: one that is read twice becomes an object of the dataflow, one that is read once is inlined.

An object is computed once, and its rows are the same for every reader.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_planner.catalyst.json_tree import CatalystNode, walk
from tidemark_planner.errors import CatalystFailed, unsupported
from tidemark_planner.hir.keys import is_monotonic, unique_keys
from tidemark_planner.hir.nodes import Hir, Scan, scan
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.rules import optimise


def lower_with_cte(node: CatalystNode, context: Context) -> Lowered:
    """The definitions in order (a later one may read an earlier one), then the query."""
    *definitions, query = node.children
    trees = (node, *context.subqueries.values())
    read = {id(n): int(n.fields["cteId"]) for tree in trees for n in walk(tree) if n.kind == "CTERelationRef"}
    uses = list(read.values())
    for definition in definitions:
        number = int(definition.fields["id"])
        lowered = context.lower(definition.children[0])
        if uses.count(number) > 1:
            lowered = replace(lowered, hir=share(lowered.hir, context))
        context.ctes[number] = lowered
    return context.lower(query)


def lower_cte_ref(node: CatalystNode, context: Context) -> Lowered:
    if node.fields.get("recursive"):
        unsupported("WITH RECURSIVE in this place", "write it at the beginning of the query", "RECURSIVE")
    found = context.ctes.get(int(node.fields["cteId"]))
    if found is None:
        raise CatalystFailed(f"common table expression {node.fields['cteId']} is read before it is defined")
    return Lowered(found.hir, attributes_of(node.expressions("output"))[0], found.names)


def share(hir: Hir, context: Context) -> Scan:
    """The rows as an object of the dataflow: computed once, and read from several places."""
    optimised = optimise(hir)
    name = context.add_object(optimised)
    return scan(name, optimised.schema, unique_keys(optimised), is_monotonic(optimised))
