"""Exports of views: their columns, their key, and the names that columns may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_planner.errors import refuse
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.sql.names import NamedRelation
from tidemark_protocol.messages.planning import ExportRequest, PlannedExport

# Characters that a column of a Delta table without column mapping cannot have in its name.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")


@dataclass(frozen=True)
class PlannedView:
    """A lowered view: its object, and the relation that later views and exports read."""

    relation: NamedRelation
    hir: Hir


def check_output_names(names: tuple[str, ...]) -> None:
    """Raise Refusal unless a view's columns have distinct names that a Delta table can have."""
    for folded, count in Counter(n.lower() for n in names).items():
        if count > 1:
            refuse("DUPLICATE_NAME", f"{count} columns are called {folded}: rename all but one with AS", word=folded)
    for name in names:
        if name.startswith("__"):
            refuse("RESERVED_NAME", f"column names beginning with __ are reserved: rename {name} with AS", word=name)
        if _NOT_IN_NAMES & set(name):
            refuse("RESERVED_NAME", f"the column {name} needs a name: write {name} AS ...", word=name)


def plan_export(export: ExportRequest, views: Mapping[str, PlannedView]) -> PlannedExport:
    """The export.

    Its key: the requested one, else a unique key where one is known, else all columns. Raises Refusal.
    """
    view = views.get(export.view.lower())
    if view is None:
        message = f"export {export.name}: there is no view {export.view}: name a view of spec.views"
        refuse("UNRESOLVED_RELATION", message, word=export.view)
    relation = view.relation
    positions = {c.name.lower(): i for i, c in enumerate(relation.columns)}
    every = tuple(range(len(relation.columns)))
    default = relation.keys[0] if relation.keys else every
    key = default if export.key is None else tuple(_position(export, name, positions) for name in export.key)
    unique = any(set(k) <= set(key) for k in relation.keys)
    return PlannedExport(export.name, export.kind, relation.id, relation.columns, key, unique, relation.monotonic)


def _position(export: ExportRequest, name: str, positions: Mapping[str, int]) -> int:
    found = positions.get(name.lower())
    if found is None:
        has = ", ".join(positions)
        refuse(
            "UNRESOLVED_COLUMN",
            f"export {export.name}: the key {name} is not a column of the view: choose among {has}",
            word=name,
        )
    return found
