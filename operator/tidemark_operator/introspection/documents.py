"""The rows of relations as one document, for the replica that keeps them as tables.

All relations of a document are what the operator knows at one moment. Tables of sources of this kind are left out of
`frontiers` and `tables`: these tables would change at each tick because they changed at the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.relations import MAX_BYTES, Row, row_bytes, rows_of
from tidemark_operator.resources.relation_columns import COLUMNS
from tidemark_protocol.plan.ingestion import IntrospectionSource

TOO_MANY_ROWS = "TooManyRows"


def document(context: ReconcileContext, namespace: str, names: Iterable[str]) -> dict[str, Any]:
    """The rows of these relations of a namespace, by columns; without rows, and with the obstacle, where they take more
    than MAX_BYTES together, or where this operator has no such relation."""
    relations, total, sizes = dict[str, Any](), 0, dict[str, int]()
    for name in names:
        if name not in COLUMNS:
            return {"obstacle": f"RelationUnknown: this operator's version has no relation {name}: use a newer one"}
        made = []
        for row in _others(context, namespace, name):
            size = row_bytes(row)
            sizes[name], total = sizes.get(name, 0) + size, total + size
            if total > MAX_BYTES:
                return {"obstacle": _too_many(namespace, sizes)}
            made.append(row)
        columns = zip(*made, strict=True) if made else ([] for _ in COLUMNS[name])
        relations[name] = {c.name: list(values) for c, values in zip(COLUMNS[name], columns, strict=True)}
    return {"relations": relations}


def encoded(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def _others(context: ReconcileContext, namespace: str, name: str) -> Iterator[Row]:
    """The rows without those of tables of introspection."""
    rows = rows_of(context, namespace, name)
    if name not in ("frontiers", "tables"):
        return rows
    sources = context.registry.sources(namespace)
    own = {s.key.name for s in sources if s.pinned and isinstance(s.pinned.source, IntrospectionSource)}
    if name == "tables":
        return (row for row in rows if row[0] not in own)
    return (row for row in rows if not (row[1] == "table" and str(row[0]).partition(".")[0] in own))


def _too_many(namespace: str, sizes: dict[str, int]) -> str:
    largest = max(sizes, key=lambda name: sizes[name])
    return (
        f"{TOO_MANY_ROWS}: the rows of namespace {namespace} take more than {MAX_BYTES} bytes, most of them in "
        f"{largest}, so the tables stand still; leave it out of spec.introspection.relations"
    )
