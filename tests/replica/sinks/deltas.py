"""Outputs of a step for a sink, made by hand."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_replica.arrangement.rows.updates import make_updates, update_schema
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.values.arrow_types import arrow_schema

Update = tuple[tuple[object, ...] | str, int, int]
"""A row, or an error, its time and its diff."""


def staged(
    folder: Path,
    columns: Sequence[object],
    lower: int,
    upper: int,
    updates: Sequence[Update] = (),
    release: Callable[[], None] = lambda: None,
    batch_rows: int = 1000,
) -> Staged:
    """The updates of [lower, upper) as a step stages them: in a file, as they come, their errors counted."""
    types = arrow_schema(columns).types  # type: ignore[arg-type]
    schema, path = update_schema(types), folder / f"{uuid.uuid4().hex}.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in range(0, len(updates), batch_rows):
            writer.write_batch(_batch(types, updates[start : start + batch_rows]))
    errors: dict[int, Counter[str]] = {}
    for row, time, diff in updates:
        if isinstance(row, str):
            errors.setdefault(time, Counter())[row] += diff
    delta = SinkDelta(
        GlobalId("s"), Time(lower), Frontier.decode(upper), schema, (path,) if updates else (), len(updates)
    )
    return Staged(lower, upper, delta, release, errors)


def _batch(types: Sequence[pa.DataType], updates: Sequence[Update]) -> pa.RecordBatch:
    rows = [row if not isinstance(row, str) else (None,) * len(types) for row, _, _ in updates]
    columns = [pa.array([row[i] for row in rows], t) for i, t in enumerate(types)]
    errors = pa.array([row if isinstance(row, str) else None for row, _, _ in updates], pa.string())
    times, diffs = (np.array([u[i] for u in updates], np.int64) for i in (1, 2))
    return make_updates(columns, times, diffs, errors)
