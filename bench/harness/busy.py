"""A busy system, and its clients: 18 Dataflows that step each second, 10 clients that look keys up and 10 that ask for
aggregates, each as soon as it has its last answer.

A statement that waits in the gateway costs nothing of the machine, so the lookups' times say whether short queries keep
their place beside long ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from bench.harness.clock import p50
from bench.harness.context import progress
from bench.harness.gateway_client import GatewayClient
from bench.harness.ratios import Figures

LOOKUP_CLIENTS, ADHOC_CLIENTS = 10, 10
BUSY_SECONDS = 30.0
DATAFLOWS = {
    "by-supplier": "SELECT l_suppkey, sum(l_quantity) AS q, max(l_tax) AS tax FROM tpch.lineitem GROUP BY l_suppkey",
    "by-mode": "SELECT l_shipmode, l_returnflag, count(*) AS n FROM tpch.lineitem GROUP BY l_shipmode, l_returnflag",
    "by-status": "SELECT o_orderstatus, sum(o_totalprice) AS price FROM tpch.orders GROUP BY o_orderstatus",
    "by-clerk": "SELECT o_clerk, count(*) AS n, avg(o_totalprice) AS price FROM tpch.orders GROUP BY o_clerk",
    "by-customer": "SELECT o_custkey, count(*) AS n, sum(o_totalprice) AS price FROM tpch.orders GROUP BY o_custkey",
    "by-priority": "SELECT o_orderpriority, count(DISTINCT o_custkey) AS n FROM tpch.orders GROUP BY o_orderpriority",
    "by-segment": """SELECT c_mktsegment, sum(o_totalprice) AS price FROM tpch.orders
        JOIN tpch.customer ON o_custkey = c_custkey GROUP BY c_mktsegment""",
    "by-nation": """SELECT n_name, count(*) AS n FROM tpch.customer JOIN tpch.nation ON c_nationkey = n_nationkey
        JOIN tpch.orders ON o_custkey = c_custkey GROUP BY n_name""",
    "by-brand": """SELECT p_brand, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM tpch.lineitem
        JOIN tpch.part ON l_partkey = p_partkey GROUP BY p_brand""",
    "large": "SELECT l_orderkey, sum(l_quantity) AS q FROM tpch.lineitem GROUP BY 1 HAVING sum(l_quantity) > 200",
    "late": "SELECT l_orderkey, l_linenumber, l_receiptdate FROM tpch.lineitem WHERE l_receiptdate > l_commitdate",
    "dearest": "SELECT o_orderkey, o_totalprice FROM tpch.orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 100",
    "suppliers": "SELECT s_nationkey, count(*) AS n, sum(s_acctbal) AS balance FROM tpch.supplier GROUP BY s_nationkey",
    "open": "SELECT o_orderkey, o_custkey, o_orderdate FROM tpch.orders WHERE o_orderstatus = 'O'",
}
"""With the four of `bench.peek` there are 18."""
ADHOC = (
    "SELECT l_returnflag, count(*) AS n, sum(l_tax) AS tax FROM tpch.lineitem WHERE l_suppkey > {n} GROUP BY 1",
    "SELECT o_orderstatus, avg(o_totalprice) AS price FROM tpch.orders WHERE o_custkey > {n} GROUP BY o_orderstatus",
    "SELECT count(*) AS n, max(q) AS most FROM `by-part` WHERE l_partkey > {n}",
    """SELECT c_mktsegment, count(*) AS n FROM tpch.orders JOIN tpch.customer ON o_custkey = c_custkey
        WHERE o_custkey > {n} GROUP BY c_mktsegment""",
)

Connect = Callable[[], AbstractContextManager[GatewayClient]]


def busy(connected: Connect, lookup: str, keys: Any, seconds: float) -> Figures:
    """Milliseconds of lookups and of aggregates, and how many there were of either, in a closed loop of the clients.
    `lookup`: a statement with a place for a `key`."""

    def lookups(rng: np.random.Generator) -> str:
        return lookup.format(key=int(rng.choice(keys)))

    def aggregates(rng: np.random.Generator) -> str:
        return str(rng.choice(ADHOC)).format(n=int(rng.integers(0, 100)))

    with connected() as client:
        for statement in ADHOC:
            client.ask(statement.format(n=1)).table()
    end = time.perf_counter() + seconds
    with ThreadPoolExecutor(LOOKUP_CLIENTS + ADHOC_CLIENTS) as pool:
        start = threading.Barrier(LOOKUP_CLIENTS + ADHOC_CLIENTS)

        def of(number: int, statement: Callable[[np.random.Generator], str]) -> Any:
            return pool.submit(_closed_loop, connected, statement, np.random.default_rng((3, number)), start, seconds)

        short = [of(number, lookups) for number in range(LOOKUP_CLIENTS)]
        long = [of(number, aggregates) for number in range(LOOKUP_CLIENTS, LOOKUP_CLIENTS + ADHOC_CLIENTS)]
        looked_up, adhoc = ([ms for client in clients for ms in client.result()] for clients in (short, long))
    progress(f"{len(looked_up)} lookups and {len(adhoc)} aggregates in {time.perf_counter() - end + seconds:.0f} s")
    return {
        "busy_lookup_p50_ms": p50(looked_up),
        "busy_lookup_p99_ms": float(np.percentile(looked_up, 99)),
        "busy_lookups_per_s": len(looked_up) / seconds,
        "busy_adhoc_p50_ms": p50(adhoc),
        "busy_adhoc_p99_ms": float(np.percentile(adhoc, 99)),
        "busy_adhoc_per_s": len(adhoc) / seconds,
    }


def _closed_loop(
    connected: Connect,
    statement: Callable[[np.random.Generator], str],
    rng: np.random.Generator,
    start: threading.Barrier,
    seconds: float,
) -> Sequence[float]:
    """Milliseconds of each statement of one client, one after the other."""
    took = list[float]()
    with connected() as client:
        start.wait()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            client.ask(statement(rng)).table()
            took.append((time.perf_counter() - began) * 1e3)
    return took
