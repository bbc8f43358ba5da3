"""The rows of relations as one document, for the replica that keeps them as tables.

All relations of a document are what the operator knows at one moment. Tables of sources of this kind are left out of
`frontiers` and `tables`: these tables would change at each tick because they changed at the one before.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.relations import MAX_BYTES, Row, row_bytes, rows_of
from tidemark_operator.resources.conditions.data_source import RELATION_UNKNOWN, TOO_MANY_ROWS
from tidemark_operator.resources.relation_columns import COLUMNS
from tidemark_protocol.plan.ingestion import IntrospectionSource

ROWS_NOT_MADE = "RowsNotMade"


def document(context: ReconcileContext, namespace: str, names: Iterable[str]) -> dict[str, Any]:
    """The rows of these relations of a namespace, by columns, with the moment and the operator's term; without rows,
    and with the obstacle, where they take more than MAX_BYTES together, or where this operator cannot make them."""
    made_by = {"term": context.leadership.term, "moment": now_ms()}
    relations, sizes = dict[str, Any](), dict[str, int]()
    for name in names:
        if name not in COLUMNS:
            unknown = f"{RELATION_UNKNOWN}: this operator's version has no relation {name}: use a newer one"
            return made_by | {"obstacle": unknown}
        try:
            rows = _rows_within(context, namespace, name, sizes)
        except Exception as error:  # a replica's report, for example, may be no number
            return made_by | {"obstacle": _not_made(name, error)}
        if rows is None:
            return made_by | {"obstacle": _too_many(namespace, sizes)}
        columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS[name])
        relations[name] = {c.name: list(values) for c, values in zip(COLUMNS[name], columns, strict=True)}
    return made_by | {"relations": relations}


def encoded(found: dict[str, Any]) -> bytes:
    """UTF-8; a half of a surrogate pair, in the name of a file for example, is a question mark."""
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def _rows_within(context: ReconcileContext, namespace: str, name: str, sizes: dict[str, int]) -> list[Row] | None:
    """The rows of a relation, whose size is added to `sizes`; None, and no further row is made, where all of these take
    more than MAX_BYTES."""
    left, made, size = MAX_BYTES - sum(sizes.values()), list[Row](), 0
    for row in _rows_of_others(context, namespace, name):
        size += row_bytes(row)
        sizes[name] = size
        if size > left:
            return None
        made.append(row)
    return made


def _rows_of_others(context: ReconcileContext, namespace: str, name: str) -> Iterator[Row]:
    """The rows of a relation, without those about tables of introspection."""
    rows = rows_of(context, namespace, name)
    if name not in ("frontiers", "tables"):
        return rows
    sources = context.registry.sources(namespace)
    own = {s.key.name for s in sources if s.pinned and isinstance(s.pinned.source, IntrospectionSource)}
    if name == "tables":
        return (row for row in rows if row[0] not in own)
    return (row for row in rows if not (row[1] == "table" and str(row[0]).partition(".")[0] in own))


def _too_many(namespace: str, sizes: Mapping[str, int]) -> str:
    *others, last = sizes
    before = ", ".join(f"{name} {sizes[name] / 2**20:.0f} MiB" for name in others if sizes[name] * 8 > MAX_BYTES)
    return (
        f"{TOO_MANY_ROWS}: the rows of namespace {namespace} take more than {MAX_BYTES} bytes, so the tables stand "
        f"still: counted were {before + ', then ' if before else ''}a part of {last}; make "
        "spec.introspection.relations shorter"
    )


def _not_made(name: str, error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{ROWS_NOT_MADE}: the rows of relation {name} cannot be made, so the tables stand still: "
        f"{type(error).__name__} ({where.name}:{where.lineno}): {error!s:.200}; leave it out of "
        "spec.introspection.relations, and report this"
    )
