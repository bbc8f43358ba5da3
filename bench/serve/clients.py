"""Clients of psycopg: processes, each with a thread for each of its connections."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg

from bench.harness.live_lineitem import LOOKUP

CLIENT_PROCESSES, WARM_UP, PATIENCE_SECONDS = 2, 50, 120.0
LOOKUP_BY_PARAMETER = LOOKUP.format(key="%s").encode()
Options = Mapping[str, Any]
"""The options of a connection, as libpq has them."""


def lookup_times(servers: Sequence[Options], keys: Sequence[int], seconds: float, connections: int) -> list[float]:
    """Milliseconds of each lookup of so many connections within so many seconds."""
    processes = min(CLIENT_PROCESSES, connections)
    shares = [list(range(connections))[number::processes] for number in range(processes)]
    spawned = multiprocessing.get_context("spawn")
    with spawned.Manager() as manager, ProcessPoolExecutor(processes, mp_context=spawned) as pool:
        ready = manager.Barrier(processes, timeout=PATIENCE_SECONDS)
        calls = [
            pool.submit(_asked_by_process, [servers[n % len(servers)] for n in share], keys, seconds, share[0], ready)
            for share in shares
        ]
        return [ms for call in calls for ms in call.result()]


def _asked_by_process(
    servers: Sequence[Options], keys: Sequence[int], seconds: float, seed: int, ready: Any
) -> list[float]:
    """A thread for each connection."""
    start = threading.Barrier(len(servers), action=ready.wait, timeout=PATIENCE_SECONDS)

    def one(number: int) -> list[float]:
        rng, took = np.random.default_rng((seed, number)), list[float]()
        wanted = rng.choice(keys, 100_000).tolist()
        with connected(servers[number]) as connection:
            for key in wanted[:WARM_UP]:
                looked_up(connection, key)
            start.wait()
            until = time.perf_counter() + seconds
            for key in wanted:
                if (began := time.perf_counter()) >= until:
                    break
                looked_up(connection, key)
                took.append((time.perf_counter() - began) * 1e3)
        return took

    with ThreadPoolExecutor(len(servers)) as pool:
        return [ms for took in pool.map(one, range(len(servers))) for ms in took]


def connected(to: Options) -> psycopg.Connection[Any]:
    return psycopg.connect(**to, autocommit=True, prepare_threshold=1)


def looked_up(connection: psycopg.Connection[Any], key: int) -> list[tuple[Any, ...]]:
    return connection.execute(LOOKUP_BY_PARAMETER, [key]).fetchall()
