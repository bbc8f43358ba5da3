"""Peeks of a large materialized view's shard, by a replica's reader in a process of its own.

    python -m bench.harness.large_view LARGE SMALL     prints figures as JSON; the shards are those of `write_view`

The view has lines of orders, and ticks that change some of them, with compactions as they fall due; the since stays, so
that every retraction is kept. DuckDB reads the same files, and its rows of a key are compared with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.harness.answers import WrongAnswer
from bench.harness.clock import p50
from bench.harness.context import progress
from bench.harness.processes import resident_mb
from bench.harness.ratios import Figures
from tests.e2e.oracle import rows_of
from tidemark_persist import DIFF, TIME, Shard, create_or_open, open_shard, write_staged
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import Peek, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, SqlType
from tidemark_replica.peek.collection_reader import ReadContext, read_shard
from tidemark_replica.peek.result_finishing import finished_batches
from tidemark_replica.values.arrow_types import arrow_schema

TYPES = {
    "l_orderkey": "bigint",
    "l_partkey": "bigint",
    "l_suppkey": "bigint",
    "l_linenumber": "int",
    "l_quantity": "decimal(15,2)",
    "l_discount": "double",
    "l_returnflag": "string",
    "l_shipdate": "date",
    "l_shipmode": "string",
    "l_comment": "string",
}
COLUMNS = tuple(Column(name, SqlType.parse(type)) for name, type in TYPES.items())
SMALL_ROWS, PIECE_ROWS = 300_000, 500_000
TICKS, CHANGED = 60, 400
ASKED, WARM_UP = 15, 3
PEERS_ASKED = 3


def measured(rows: int) -> Figures:
    """The figures of a view of so many rows."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = f"{folder}/large", f"{folder}/small"
        write_view(small, SMALL_ROWS)
        write_view(large, rows)
        progress(f"a view of {rows} rows is written")
        command = [sys.executable, "-m", "bench.harness.large_view", large, small]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise WrongAnswer(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def write_view(location: str, rows: int) -> None:
    """The first write of a view, and ticks."""
    shard = create_or_open(location, arrow_schema(COLUMNS), shard_id="view")
    pieces = range(0, rows, PIECE_ROWS)
    files = [write_staged(location, _updates(_lines(at, min(PIECE_ROWS, rows - at)), 0, 1)) for at in pieces]
    shard.compare_and_append([f for f in files if f is not None], expected_upper=0, new_upper=1, term=1)
    changed = np.random.default_rng(1).choice(rows // CHANGED, TICKS, replace=False) * CHANGED
    for tick, at in enumerate(map(int, changed), 1):
        start = at // PIECE_ROWS * PIECE_ROWS
        _change(shard, _lines(start, min(PIECE_ROWS, rows - start)).slice(at - start, CHANGED), tick)


def _change(shard: Shard, old: pa.Table, tick: int) -> None:
    new = old.set_column(1, "l_partkey", pa.array(np.full(old.num_rows, -tick)))
    updates = pa.concat_tables([_updates(old, tick, -1), _updates(new, tick, 1)])
    shard.compare_and_append(updates, expected_upper=tick, new_upper=tick + 1, term=1)
    for work in shard.maintenance_due():
        shard.run_maintenance(work)


def _lines(start: int, rows: int) -> pa.Table:
    """Four lines of each order; the same ones for the same start."""
    rng, number = np.random.default_rng(start), np.arange(start, start + rows)
    flags, modes = np.array(["A", "N", "R"]), np.array(["AIR", "MAIL", "SHIP", "TRUCK"])
    columns = [
        pa.array(number // 4),
        pa.array(rng.integers(0, 200_000, rows)),
        pa.array(rng.integers(0, 10_000, rows)),
        pa.array((number % 4).astype(np.int32)),
        pa.array(rng.integers(1, 51, rows)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(15, 2)),
        pa.array(rng.random(rows)),
        pa.array(flags[rng.integers(0, 3, rows)]),
        pa.array(rng.integers(8000, 10_000, rows).astype(np.int32)).cast(pa.date32()),
        pa.array(modes[rng.integers(0, 4, rows)]),
        pa.array(np.char.add("line ", rng.integers(0, 10**9, rows).astype(str))),
    ]
    return pa.table(columns, schema=arrow_schema(COLUMNS))


def _updates(rows: pa.Table, at: int, diff: int) -> pa.Table:
    full = (pa.array(np.full(rows.num_rows, value)) for value in (at, diff))
    return rows.append_column(TIME, next(full)).append_column(DIFF, next(full))


class View:
    """Asks a view's shard as a replica does, whose handle of the shard is open, and DuckDB."""

    def __init__(self, location: str) -> None:
        self._shard = open_shard(location)
        self._metadata = ShardMetadata(ShardId("view"), location, COLUMNS)
        self._files = DeltaTable(location).file_uris()
        self._duckdb = duckdb.connect()

    def limit(self) -> pa.Table:
        return self._ask(MapFilterProject.identity(self._metadata.schema), Finishing(limit=10))

    def key(self, key: int) -> pa.Table:
        schema = self._metadata.schema
        equal = call("=", (ColumnRef(0, BIGINT, schema[0].nullable), Literal(str(key), BIGINT)), BOOLEAN)
        return self._ask(MapFilterProject(schema, (), (equal,)), Finishing())

    def duckdb(self, rest: str) -> pa.Table:
        """The rows of the view by DuckDB, which adds up diffs."""
        columns = ", ".join(TYPES)
        text = f"SELECT {columns} FROM read_parquet($files) WHERE __error IS NULL AND {rest}"
        return self._duckdb.execute(text, {"files": self._files}).to_arrow_table()

    def _ask(self, mfp: MapFilterProject, finishing: Finishing) -> pa.Table:
        at = Time(self._shard.refresh().upper - 1)
        peek = Peek("peek", ShardTarget(GlobalId("view"), self._metadata), at, mfp, finishing, COLUMNS)
        reading = ReadContext(_no_session, 1 << 30, open_shard=lambda location: self._shard)
        schema = arrow_schema(COLUMNS)
        return pa.Table.from_batches(
            finished_batches(read_shard(reading, self._metadata, peek), schema, finishing), schema
        )


def _no_session() -> Any:
    raise AssertionError("these peeks need no Spark job")


def main(large: str, small: str) -> None:
    """Measure and print. Memory is that of the large view's peeks beyond what those of the small one took."""
    for _ in _figures_of(View(small), SMALL_ROWS):
        pass
    before, view = resident_mb(os.getpid()), View(large)
    Path("/proc/self/clear_refs").write_text("5")  # the most that the process has is counted from here on
    rows = open_shard(large).size().rows
    figures = dict(_figures_of(view, rows))
    figures["view_growth_mib"] = max(resident_mb(os.getpid(), most=True) - before, 0.0)
    _compare(view, rows)
    group = f"GROUP BY {', '.join(TYPES)} HAVING sum(__diff) <> 0"
    peers = {
        "limit": lambda number: view.duckdb(f"true {group} LIMIT 10"),
        "key": lambda number: view.duckdb(f"l_orderkey = {_key(rows, number)} {group}"),
    }
    for name, ask in peers.items():
        took = p50(_times(ask, PEERS_ASKED))
        figures |= {f"view_{name}_duckdb_ms": took, f"view_{name}_duckdb_ratio": took / figures[f"view_{name}_p50_ms"]}
    print(json.dumps(figures))


def _figures_of(view: View, rows: int) -> Iterator[tuple[str, float]]:
    _times(lambda number: view.limit(), WARM_UP)
    yield "view_limit_p50_ms", p50(_times(lambda number: view.limit(), ASKED))
    yield "view_key_p50_ms", p50(_times(lambda number: view.key(_key(rows, number)), ASKED))


def _key(rows: int, number: int) -> int:
    return (number * 7919 * 104_729) % (rows // 5)


def _times(ask: Callable[[int], object], times: int) -> list[float]:
    """Milliseconds of each."""
    took = []
    for number in range(times):
        began = time.perf_counter()
        ask(number)
        took.append((time.perf_counter() - began) * 1e3)
    return took


def _compare(view: View, rows: int) -> None:
    """Rows of keys are DuckDB's, and rows up to a limit are rows of the view. Raises WrongAnswer."""
    group = f"GROUP BY {', '.join(TYPES)} HAVING sum(__diff) <> 0"
    some = view.limit()
    for key in {*(_key(rows, number) for number in range(3)), *some.column("l_orderkey").to_pylist()}:
        ours, wanted = rows_of(view.key(key)), rows_of(view.duckdb(f"l_orderkey = {key} {group}"))
        if ours != wanted:
            raise WrongAnswer(f"order {key}: {ours}, DuckDB has {wanted}")
        if not set(rows_of(some.filter(pc.equal(some.column("l_orderkey"), key)))) <= set(wanted):
            raise WrongAnswer(f"order {key}: rows up to a limit are not rows of the view")
    if some.num_rows != 10:
        raise WrongAnswer(f"{some.num_rows} rows up to a limit of 10")


if __name__ == "__main__":
    main(*sys.argv[1:])
