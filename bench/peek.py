"""Lookups through the gateway while everything goes on: `python -m bench.peek [--json]`.

    p50_ms, p99_ms   a client that asks for one key after the other
    peeks_per_s      several clients that do
    spark_sql_ratio  the same lookup by Spark SQL on the materialized view's table, over ours, medians
    busy_...         lookups and aggregates at the same time, beside 18 Dataflows (harness/busy.py)

The whole system: an API server, an operator, a replica; TPC-H that ingests every second, lineitem as an index by order
and as a materialized view, and aggregations over it that step with it. Answers of the first keys are compared with the
view's table at the same time; an answer that differs ends the run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from bench.harness.answers import WrongAnswer
from bench.harness.busy import BUSY_SECONDS, DATAFLOWS, busy
from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.ratios import Figures, rounded
from bench.peers.spark_lookup import SparkLookup
from tests.e2e.oracle import expanded, rows_of
from tests.e2e.system import System, running
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import Progress
from tidemark_protocol.pb.gateway_pb2 import QueryRequest
from tidemark_protocol.pb.gateway_pb2_grpc import GatewayStub
from tidemark_protocol.wire.frames import GRPC_OPTIONS

NAMESPACE, LINES_OF_SF1 = "bench", 6_000_000
COLUMNS = "l_orderkey, l_linenumber, l_partkey, l_quantity, l_extendedprice, l_shipdate"
INDEX = f"SELECT {COLUMNS} FROM tpch.lineitem"
LOOKUP = f"SELECT {COLUMNS} FROM lines WHERE l_orderkey = {{key}}"
STEPPING = {
    "by-part": "SELECT l_partkey, sum(l_quantity) AS q, count(*) AS n FROM tpch.lineitem GROUP BY l_partkey",
    "by-day": "SELECT l_shipdate, sum(l_extendedprice) AS price FROM tpch.lineitem GROUP BY l_shipdate",
}
CHECKED, WARM_UP = 20, 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table, few lookups")
    parser.add_argument("--lines", type=int, default=1_000_000, help="rows of the index (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of asking, by one and by many (%(default)s)")
    parser.add_argument("--clients", type=int, default=8, help="that ask at the same time (%(default)s)")
    parser.add_argument("--spark-lookups", type=int, default=20, help="by Spark SQL (%(default)s)")
    parser.add_argument("--busy-seconds", type=float, default=BUSY_SECONDS, help="of the busy system (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(lines=6000, seconds=2.0, clients=2, spark_lookups=3, busy_seconds=5.0)
    circumstances = context() | {"load_before": load(), **vars(given)}
    binaries = ensure_binaries(os.environ, Progress(sys.stderr))
    with (
        tempfile.TemporaryDirectory(prefix="tm-", ignore_cleanup_errors=True) as folder,
        ControlPlane.started(Path(folder) / "plane", binaries) as plane,
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        (home := Path(folder) / "system").mkdir()
        with running(plane, NAMESPACE, home) as system:
            _install(system, given.lines)
            figures = _measured(system, given.seconds, given.clients, given.spark_lookups)
            figures |= _measured_busy(system, given.busy_seconds)
    report("peek", rounded(figures), circumstances | {"load_after": load()}, given.json)


def _install(system: System, lines: int) -> None:
    system.base(memory="3Gi")
    system.tpch(scale_factor=max(lines / LINES_OF_SF1, 0.001))
    system.dataflow("lines", INDEX, index={"key": ["l_orderkey"]})
    system.dataflow("table", INDEX)
    for name, sql in STEPPING.items():
        system.dataflow(name, sql, index={})
    system.wait_hydrated("lines", "table", *STEPPING)
    progress("everything is hydrated")


def _measured(system: System, seconds: float, clients: int, spark_lookups: int) -> Figures:
    at = json.loads(system.tidemark("query", LOOKUP.format(key=1), "-n", NAMESPACE, "-o", "json").stdout)["as_of"]
    rows = system.contents("table", "table", at)
    keys = np.unique(rows.column("l_orderkey").to_numpy())
    with client(system) as ask:
        _check(ask, rows, at, keys[:: max(len(keys) // CHECKED, 1)])
        for key in keys[:WARM_UP]:
            ask(int(key))
        one = _asked(system, keys, seconds, 1, seed=1)
    many = _asked(system, keys, seconds, clients, seed=2)
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
    with querying(system) as query:
        keys = query("SELECT l_orderkey FROM lines LIMIT 10000").column(0).to_numpy()
    return busy(partial(querying, system), LOOKUP, np.unique(keys), seconds)


Ask = Callable[..., pa.Table]


@contextmanager
def client(system: System) -> Iterator[Ask]:
    """A client of the gateway that looks keys up."""
    with querying(system) as query:
        yield lambda key, as_of=None: query(LOOKUP.format(key=key), as_of)


@contextmanager
def querying(system: System) -> Iterator[Ask]:
    """A client of the gateway, with a connection of its own."""
    found = json.loads((system.home / "gateway.json").read_text())
    token = Path(found["tokenFile"]).read_text().strip()
    options = [*GRPC_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(found["address"], options=options) as channel:
        stub = GatewayStub(channel)  # type: ignore[no-untyped-call]

        def ask(sql: str, as_of: int | None = None) -> pa.Table:
            request = QueryRequest(namespace=NAMESPACE, sql=sql, as_of=as_of)
            replies: Any = stub.Query(request, metadata=(("authorization", f"Bearer {token}"),), timeout=120)
            return pa.ipc.open_stream(b"".join(reply.arrow for reply in replies)).read_all()

        yield ask


def _asked(system: System, keys: Any, seconds: float, clients: int, seed: int) -> list[float]:
    """Milliseconds of each lookup of so many clients within so many seconds."""
    start = threading.Barrier(clients)

    def one(number: int) -> list[float]:
        rng, took = np.random.default_rng((seed, number)), list[float]()
        with client(system) as ask:
            ask(int(keys[0]))
            start.wait()
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                ask(int(rng.choice(keys)))
                took.append((time.perf_counter() - began) * 1e3)
        return took

    with ThreadPoolExecutor(clients) as pool:
        return [ms for took in pool.map(one, range(clients)) for ms in took]


def _check(ask: Ask, rows: pa.Table, at: int, keys: Any) -> None:
    """The rows of these keys are those of the view's table at that time."""
    whole = expanded(rows)
    for key in keys:
        wanted = whole.filter(pa.array(whole.column("l_orderkey").to_numpy() == key))
        answer = ask(int(key), at)
        if rows_of(answer) != rows_of(wanted):
            raise WrongAnswer(f"order {key} at {at}: {rows_of(answer)}, the view's table has {rows_of(wanted)}")


if __name__ == "__main__":
    main()
