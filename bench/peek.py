"""Lookups through the gateway while everything goes on: `python -m bench.peek [--json]`.

    p50_ms, p99_ms   a client that asks for one key after the other
    peeks_per_s      several clients that do
    spark_sql_ratio  the same lookup by Spark SQL on the materialized view's table, over ours, medians
    busy_...         lookups and aggregates at the same time, beside 18 Dataflows (harness/busy.py)
    view_...         `LIMIT 10` and an order's rows of a large materialized view's shard, by a replica's reader
                     (harness/large_view.py): milliseconds, memory, and DuckDB on the same files over ours

The whole system: an API server, an operator, a replica; TPC-H that ingests every second, lineitem as an index by order
and as a materialized view, and aggregations over it that step with it. Answers of the first keys are compared with the
view's table at the same time; an answer that differs ends the run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import large_view
from bench.harness.answers import WrongAnswer
from bench.harness.busy import BUSY_SECONDS, DATAFLOWS, busy
from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.gateway_client import GatewayClient
from bench.harness.live_lineitem import LOOKUP, NAMESPACE, client_of, install_lineitem, started_system
from bench.harness.ratios import Figures, rounded
from bench.peers.spark_lookup import SparkLookup
from tests.e2e.oracle import expanded, rows_of
from tests.e2e.system import System

CHECKED, WARM_UP = 20, 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table, few lookups")
    parser.add_argument("--lines", type=int, default=1_000_000, help="rows of the index (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of asking, by one and by many (%(default)s)")
    parser.add_argument("--clients", type=int, default=8, help="that ask at the same time (%(default)s)")
    parser.add_argument("--spark-lookups", type=int, default=20, help="by Spark SQL (%(default)s)")
    parser.add_argument("--busy-seconds", type=float, default=BUSY_SECONDS, help="of the busy system (%(default)s)")
    parser.add_argument("--view-rows", type=int, default=10_000_000, help="of the large view (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(view_rows=1_000_000, lines=6000, seconds=2.0, clients=2, spark_lookups=3, busy_seconds=5.0)
    circumstances = context() | {"load_before": load(), **vars(given)}
    view_figures = large_view.measured(given.view_rows)
    with started_system() as system:
        _install(system, given.lines)
        figures = _measured(system, given.seconds, given.clients, given.spark_lookups)
        figures |= _measured_busy(system, given.busy_seconds)
    report("peek", rounded(figures | view_figures), circumstances | {"load_after": load()}, given.json)


def _install(system: System, lines: int) -> None:
    system.base(memory="3Gi")
    install_lineitem(system, lines)
    progress("everything is hydrated")


def _measured(system: System, seconds: float, clients: int, spark_lookups: int) -> Figures:
    at = json.loads(system.tidemark("query", LOOKUP.format(key=1), "-n", NAMESPACE, "-o", "json").stdout)["as_of"]
    rows = system.contents("table", "table", at)
    keys = np.unique(rows.column("l_orderkey").to_numpy())
    with client_of(system) as client:
        _check(client, rows, at, keys[:: max(len(keys) // CHECKED, 1)])
        for key in keys[:WARM_UP]:
            client.ask(LOOKUP.format(key=key))
        one = _lookup_times(system, keys, seconds, 1, seed=1)
    many = _lookup_times(system, keys, seconds, clients, seed=2)
    some = [int(key) for key in keys[:: max(len(keys) // spark_lookups, 1)][:spark_lookups]]
    spark = SparkLookup(system.shard("table", "table")).times(some)
    return {
        "p50_ms": p50(one),
        "p99_ms": float(np.percentile(one, 99)),
        "max_ms": max(one),
        "peeks_per_s": len(many) / seconds,
        "many_p50_ms": p50(many),
        "many_p99_ms": float(np.percentile(many, 99)),
        "spark_sql_ratio": p50(spark) / p50(one),
        "spark_sql_ms": p50(spark),
        "rows": float(rows.num_rows),
    }


def _measured_busy(system: System, seconds: float) -> Figures:
    for name, sql in DATAFLOWS.items():
        system.dataflow(name, sql, index={})
    system.wait_hydrated(*DATAFLOWS)
    progress(f"{len(DATAFLOWS)} Dataflows more are hydrated")
    with client_of(system) as client:
        keys = client.ask("SELECT l_orderkey FROM lines LIMIT 10000").table().column(0).to_numpy()
    return busy(partial(client_of, system), LOOKUP, np.unique(keys), seconds)


def _lookup_times(system: System, keys: Any, seconds: float, clients: int, seed: int) -> list[float]:
    """Milliseconds of each lookup of so many clients within so many seconds."""
    start = threading.Barrier(clients)

    def one(number: int) -> list[float]:
        rng, took = np.random.default_rng((seed, number)), list[float]()
        with client_of(system) as client:
            client.ask(LOOKUP.format(key=keys[0]))
            start.wait()
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                client.ask(LOOKUP.format(key=rng.choice(keys))).table()
                took.append((time.perf_counter() - began) * 1e3)
        return took

    with ThreadPoolExecutor(clients) as pool:
        return [ms for took in pool.map(one, range(clients)) for ms in took]


def _check(client: GatewayClient, rows: pa.Table, at: int, keys: Any) -> None:
    """The rows of these keys are those of the view's table at that time."""
    whole = expanded(rows)
    for key in keys:
        wanted = whole.filter(pa.array(whole.column("l_orderkey").to_numpy() == key))
        answer = client.ask(LOOKUP.format(key=key), at).table()
        if rows_of(answer) != rows_of(wanted):
            raise WrongAnswer(f"order {key} at {at}: {rows_of(answer)}, the view's table has {rows_of(wanted)}")


if __name__ == "__main__":
    main()
