"""Lookups over the PostgreSQL protocol: `python -m bench.serve [--json]`.

    lookup_p50_ms, lookup_one_p99_ms   one connection that asks for one key after the other
    lookups_per_s, lookup_p99_ms       32 connections that do, of two client processes
    postgres_ms, postgres_ratio        a PostgreSQL server's lookup of the same rows by the same client, with an index;
                                       the ratio is our median over its median, with one connection
    cpu_ms_...                         processor time for each lookup with 32 connections, by process; the replica's
                                       and the operator's have their other work in it, from the clients' start on

The whole system of bench.peek, with `tidemark-pgwire` processes before its gateway. Clients are psycopg's, with
prepared statements and one parameter. The rows of the first keys are compared with PostgreSQL's, at the time at which
these were copied; rows that differ end the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bench.harness.answers import WrongAnswer
from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.live_lineitem import COLUMNS, LOOKUP, NAMESPACE, install_lineitem, started_system
from bench.harness.processes import cpu_seconds
from bench.harness.ratios import Figures, rounded
from bench.serve.clients import WARM_UP, Options, connected, looked_up, lookup_times
from tests.dialects import postgres
from tests.e2e.oracle import expanded
from tests.e2e.system import System
from tests.ports import free_port
from tests.waiting import until as wait_until

CHECKED = 50
TABLE = """
create table lines (l_orderkey bigint, l_linenumber int, l_partkey bigint, l_quantity numeric(15, 2),
    l_extendedprice numeric(15, 2), l_shipdate date);
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table, few lookups")
    parser.add_argument("--lines", type=int, default=60_000, help="rows of the index (%(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of asking, by one and by many (%(default)s)")
    parser.add_argument("--connections", type=int, default=32, help="that ask at the same time (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="of tidemark-pgwire (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(lines=6000, seconds=2.0, connections=4)
    circumstances = context() | {"load_before": load(), **vars(given)}
    with ExitStack() as stack:
        system = stack.enter_context(started_system())
        system.base(memory="2Gi")
        install_lineitem(system, given.lines)
        progress("everything is hydrated")
        ours = [stack.enter_context(serving(system)) for _ in range(given.processes)]
        server = stack.enter_context(postgres.running())
        theirs = {"host": str(server.folder), "port": server.port, "user": "test", "dbname": "postgres"}
        keys = _compared(system, ours[0][1], theirs)
        progress("the rows are equal")
        figures = _measured(system, ours, theirs, keys, given.seconds, given.connections)
    report("serve", rounded(figures), circumstances | {"load_after": load()}, given.json)


@contextmanager
def serving(system: System) -> Iterator[tuple[int, Options]]:
    """A `tidemark-pgwire` before the system's gateway: its process, and how to connect."""
    found = json.loads((system.home / "gateway.json").read_text())
    port = free_port()
    command = [sys.executable, "-m", "tidemark_pgwire", "--listen", f"127.0.0.1:{port}", "--insecure-loopback"]
    command += ["--gateway-file", str(system.home / "gateway.json")]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: b"listening" in Path(log.name).read_bytes())
            token = Path(found["tokenFile"]).read_text().strip()
            at = {"host": "127.0.0.1", "port": port, "user": "me", "password": token, "sslmode": "disable"}
            yield process.pid, {**at, "dbname": NAMESPACE}
        finally:
            process.terminate()
            process.wait(60)


def _compared(system: System, ours: Options, theirs: Options) -> list[int]:
    """All keys. PostgreSQL has the view's rows of one time, and the rows of some keys at it are the same."""
    at = json.loads(system.tidemark("query", LOOKUP.format(key=1), "-n", NAMESPACE, "-o", "json").stdout)["as_of"]
    rows = expanded(system.contents("table", "table", at))
    names = [name.strip() for name in COLUMNS.split(",")]
    with connected(theirs) as connection:
        connection.execute(TABLE)
        with connection.cursor() as cursor, cursor.copy(f"copy lines ({COLUMNS}) from stdin".encode()) as copy:
            for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
                copy.write_row(row)
        connection.execute("create index on lines (l_orderkey)")
        connection.execute("analyze lines")
    keys = [int(key) for key in np.unique(rows.column("l_orderkey").to_numpy())]
    with connected({**ours, "options": f"-c tidemark.as_of={at}"}) as here, connected(theirs) as there:
        for key in keys[:: max(len(keys) // CHECKED, 1)]:
            answers = [sorted(looked_up(connection, key)) for connection in (here, there)]
            if answers[0] != answers[1] or not answers[0]:
                raise WrongAnswer(f"order {key} at {at}: {answers[0]}, PostgreSQL has {answers[1]}")
    return keys


def _measured(
    system: System,
    ours: Sequence[tuple[int, Options]],
    theirs: Options,
    keys: Sequence[int],
    seconds: float,
    connections: int,
) -> Figures:
    one = lookup_times([ours[0][1]], keys, seconds, 1)
    peer = lookup_times([theirs], keys, seconds / 3, 1)
    progress(f"one connection: {p50(one):.2f} ms, PostgreSQL's {p50(peer):.2f} ms")
    assert system.operator is not None
    served = {"pgwire": [pid for pid, _ in ours], "operator": [system.operator.pid]}
    served["replica"] = list(system.replica_pids().values())
    before = {name: _cpu_seconds(pids) for name, pids in served.items()}
    many = lookup_times([options for _, options in ours], keys, seconds, connections)
    cpu = {name: _cpu_seconds(pids) - before[name] for name, pids in served.items()}
    return {
        "lookup_p50_ms": p50(one),
        "lookup_one_p99_ms": float(np.percentile(one, 99)),
        "lookups_per_s": len(many) / seconds,
        "lookup_many_p50_ms": p50(many),
        "lookup_p99_ms": float(np.percentile(many, 99)),
        "postgres_ms": p50(peer),
        "postgres_ratio": p50(one) / p50(peer),
        **{f"cpu_ms_{name}": spent * 1e3 / (len(many) + WARM_UP * connections) for name, spent in cpu.items()},
    }


def _cpu_seconds(pids: Sequence[int]) -> float:
    return sum(map(cpu_seconds, pids))


if __name__ == "__main__":
    main()
