"""The remap rows of a `delta:` source: how far each table is bound.

    (table, table_id, version, digest, physical, restarts)      one live row per table

`digest`: of the version's log entry, so that a rewritten log is noticed; empty where the log has no such entry.
`physical`: the declared columns' names in files, as JSON (`physical_names.py`). `restarts`: how often the table was
resnapshotted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF
from tidemark_replica.storage.delta.physical_names import Physical

REMAP_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("table_id", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("digest", pa.string()),
        pa.field("physical", pa.string()),
        pa.field("restarts", pa.int64()),
    ]
)


@dataclass(frozen=True)
class BoundVersion:
    """A version of a Delta table whose contents belong to a tick."""

    table_id: str
    version: int
    digest: str
    physical: tuple[Physical, ...]
    restarts: int = 0


def binding_rows(changes: Iterable[tuple[str, BoundVersion | None, BoundVersion]]) -> pa.Table:
    """The binding of tables (name, version before, version now), with `__diff`."""
    rows = []
    for name, before, now in changes:
        for bound, diff in ((before, -1), (now, 1)):
            if bound is not None:
                physical = json.dumps(bound.physical)
                values = (name, bound.table_id, bound.version, bound.digest, physical, bound.restarts, diff)
                rows.append(values)
    schema = REMAP_SCHEMA.append(pa.field(DIFF, pa.int64()))
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def bound_version(binding: pa.Table, table: str, diff: int) -> BoundVersion | None:
    """The table's row with this sign; None if there is none."""
    if not binding.num_rows:
        return None
    mine = pc.and_(pc.equal(binding.column("table"), table), pc.equal(binding.column(DIFF), diff))
    rows = binding.filter(mine).to_pylist()
    if not rows:
        return None
    row = rows[0]
    physical = tuple(json.loads(row["physical"]))
    return BoundVersion(row["table_id"], row["version"], row["digest"], physical, row["restarts"])
