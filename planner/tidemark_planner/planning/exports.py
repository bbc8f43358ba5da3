"""Exports of views: their columns, their key, and the names that columns may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidemark_planner.catalyst.analyser import quoted
from tidemark_planner.errors import refuse
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.sql.names import NamedRelation
from tidemark_protocol.messages.planning import ExportRequest, PlannedExport
from tidemark_protocol.types import Column

# Characters that a column of a Delta table without column mapping cannot have in its name.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")


@dataclass(frozen=True)
class PlannedView:
    """A lowered view: its object, and the relation that later views and exports read."""

    relation: NamedRelation
    hir: Hir


def check_output_names(names: tuple[str, ...], unnamed: Collection[str] = ()) -> None:
    """Raise Refusal unless a view's columns have distinct names. `unnamed`: names that Spark made of expressions."""
    for folded, count in Counter(n.lower() for n in names).items():
        if count > 1:
            refuse("DUPLICATE_NAME", f"{count} columns are called {folded}: rename all but one with AS", word=folded)
    for name in names:
        if name.startswith("__"):
            refuse("RESERVED_NAME", f"column names beginning with __ are reserved: rename {name} with AS", word=name)
        if name in unnamed and _NOT_IN_NAMES & set(name):
            refuse("RESERVED_NAME", f"the column {name} needs a name: write {name} AS ...", word=name)


def check_stored_names(columns: tuple[Column, ...], export: str) -> None:
    """Raise Refusal unless a Delta table without column mapping can have columns of these names."""
    for column in columns:
        if _NOT_IN_NAMES & set(column.name):
            refuse(
                "RESERVED_NAME",
                f"export {export}: the column {quoted(column.name)} cannot be stored: names in a Delta table have no "
                "spaces, commas, semicolons, braces, parentheses or equals signs; rename it with AS, or export the "
                "view as an index",
                word=column.name,
            )


def plan_export(export: ExportRequest, views: Mapping[str, PlannedView]) -> PlannedExport:
    """The export.

    Its key: the requested one, else a unique key where one is known, else all columns. Raises Refusal.
    """
    view = views.get(export.view.lower())
    if view is None:
        message = f"export {export.name}: there is no view {export.view}: name a view of spec.views"
        refuse("UNRESOLVED_RELATION", message, word=export.view)
    relation = view.relation
    if export.kind != "index":
        check_stored_names(relation.columns, export.name)
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
