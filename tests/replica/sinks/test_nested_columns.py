"""Arrays and structs in a materialized view's shard: appended, corrected, compacted, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.replica.worker_loop import Loop
from tidemark_persist import open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink
from tidemark_replica.values.arrow_types import arrow_type

VIEW = GlobalId("view")
COLUMNS = tuple(
    Column(name, SqlType.parse(of))
    for name, of in (
        ("a", "array<int>"),
        ("s", "struct<x:double,`y z`:array<string>>"),
        ("b", "array<struct<u:binary>>"),
    )
)
SCHEMA = pa.schema(
    [
        *((f"c{i}", arrow_type(c.type)) for i, c in enumerate(COLUMNS)),
        ("__time", pa.int64()),
        ("__diff", pa.int64()),
        ("__error", pa.string()),
    ]
)
ROWS: list[tuple[Any, Any, Any]] = [
    ([1, None], {"x": 0.5, "y z": ["a", None]}, [{"u": b"\0"}, None]),
    ([], {"x": None, "y z": []}, []),
    ([1], None, [{"u": None}]),
    (None, None, None),
]


def written(folder: Path, location: Path, updates: list[tuple[int, int, int]], upper: int, term: int) -> None:
    """One sink from its start, at time 0, to `upper`; updates are (row, time, diff)."""
    folder.mkdir()
    path, loop = folder / "delta.arrow", Loop()
    arrays = [pa.array([ROWS[row][i] for row, _, _ in updates], SCHEMA.types[i]) for i in range(len(COLUMNS))]
    times, diffs = pa.array([t for _, t, _ in updates], pa.int64()), pa.array([d for _, _, d in updates], pa.int64())
    with pa.ipc.new_file(str(path), SCHEMA) as file:
        nothing = pa.nulls(len(updates), pa.string())
        file.write_batch(pa.RecordBatch.from_arrays([*arrays, times, diffs, nothing], schema=SCHEMA))
    shard = ShardMetadata(ShardId("v"), str(location), COLUMNS)
    sink = MaterializedViewSink(VIEW, shard, Frontier.at(0), loop.handles, loop.watch, loop.jobs, loop.said.append)
    sink.stage(Staged(0, upper, SinkDelta(VIEW, Time(0), Time(upper), SCHEMA, (path,), len(updates)), lambda: None))
    sink.allow_writes(WriterTerm(term))
    loop.run_until(lambda: sink.write_frontier >= Frontier.at(upper), sink.advance)


def contents(location: Path, at: int) -> list[tuple[Any, ...]]:
    rows = open_shard(str(location)).snapshot(at).to_pylist()
    return sorted(((*(r[c.name] for c in COLUMNS), r["__diff"]) for r in rows), key=repr)


def test_nested_rows_come_and_go_and_are_corrected(tmp_path: Path) -> None:
    """A second sink, which finds other contents than its own, writes the difference: equal rows cancel by value."""
    location = tmp_path / "shard"
    written(tmp_path / "r1", location, [(0, 1, 1), (1, 1, 2), (2, 2, 1), (3, 2, 1), (1, 3, -1)], 5, 1)
    assert contents(location, 4) == sorted([(*ROWS[i], 1) for i in range(4)], key=repr)
    assert contents(location, 1) == sorted([(*ROWS[0], 1), (*ROWS[1], 2)], key=repr)

    written(tmp_path / "r2", location, [(0, 1, 1), (1, 1, 2), (2, 7, 1)], 9, 2)

    assert contents(location, 6) == sorted([(*ROWS[0], 1), (*ROWS[1], 2)], key=repr)
    assert contents(location, 8) == sorted([(*ROWS[0], 1), (*ROWS[1], 2), (*ROWS[2], 1)], key=repr)
