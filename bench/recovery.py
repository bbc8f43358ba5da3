"""The time for which the system is away, or late, when a part of it dies: `python -m bench.recovery [--json]`.

    operator_s              SIGKILL to the operator, the next one starts at once, until the gateway answers a lookup
    planner_failed_queries  SIGKILL to the JVMs of the planner under queries: queries that failed
    ingestion_gap_s         SIGKILL to the replica that ingests, under queries: until the source's table goes on
    stalest_answer_s        the oldest answer until that replica is hydrated again: the clock minus its time
    query_p99_s             of lookups until then
    frozen_ingestion_gap_s  SIGSTOP to all processes of the replica that ingests: until the source's table goes on

The whole system on this machine: an API server, an operator, two replicas as local processes; TPC-H that ingests every
second, lineitem as an index by order, as a materialized view and under aggregations. Answers are compared with the
view's table at the same time; an answer that differs ends the run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from bench.harness.answers import WrongAnswer
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.gateway_client import GatewayClient, gateway_client
from bench.harness.live_lineitem import LOOKUP, NAMESPACE, client_of, install_lineitem, started_system
from bench.harness.ratios import Figures, rounded
from tests.e2e.oracle import expanded, rows_of
from tests.e2e.system import System, wait_for
from tests.replica.process import descendants
from tidemark_persist import open_shard

PLANNED = "SELECT count(*) AS n, sum(q) AS q FROM `by-part` WHERE l_partkey % 1000 = {key}"
"""A statement that nobody has planned before, as its number differs each time."""
CHECKED, KEYS = 20, 1000
CLIENTS, PAUSE_SECONDS = 2, 0.1
"""The number of clients, and the pause of each after its last answer."""
POLL_SECONDS = 0.02
BOUND = 300.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "a small table")
    parser.add_argument("--lines", type=int, default=300_000, help="rows of the index (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        given.lines = 6000
    circumstances = context() | {"load_before": load(), **vars(given)}
    with started_system() as system:
        _install(system, given.lines)
        figures = _measured(system)
    report("recovery", rounded(figures), circumstances | {"load_after": load()}, given.json)


def _install(system: System, lines: int) -> None:
    system.base(memory="2Gi")
    system.apply("ComputeReplica", "r2", {"instance": "default", "resources": {"limits": {"cpu": 2, "memory": "2Gi"}}})
    install_lineitem(system, lines)
    _until("both replicas are hydrated", lambda: _hydrated_on(system, _uids(system), after_ms=0))


def _measured(system: System) -> Figures:
    keys = np.unique(_view(system).column("l_orderkey").to_numpy())[:KEYS]
    _check(system, keys)
    figures = _operator_killed(system, int(keys[0]))
    figures |= _planner_killed(system, keys)
    figures |= _ingester_killed(system, keys)
    figures |= _ingester_frozen(system, keys)
    _check(system, keys)
    return figures


# --- the faults ---


def _operator_killed(system: System, key: int) -> Figures:
    """The next operator starts at once, as a supervisor would have it, and finds no gateway file of the one before."""
    gateway_file = system.home / "gateway.json"
    system.kill_operator()
    killed, killed_ms = time.monotonic(), int(time.time() * 1e3)
    gateway_file.unlink(missing_ok=True)
    with (system.home / "operator.log").open("ab") as log:
        began = log.tell()
        system.operator = subprocess.Popen(system.operator_command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def answered() -> int | None:
        with suppress(FileNotFoundError, ValueError, grpc.RpcError), gateway_client(gateway_file, NAMESPACE) as client:
            return client.ask(LOOKUP.format(key=key)).as_of
        return None

    _until("an answer", answered)
    answers = time.monotonic() - killed
    _until("a new answer", lambda: (answered() or 0) > killed_ms)
    new = time.monotonic() - killed
    leads = _logged(system.home / "operator.log", began, "leading under term") - killed_ms / 1e3
    lease = leads - (_logged(system.home / "operator.log", began, "standing by: ") - killed_ms / 1e3)
    progress(
        f"operator: leads after {leads:.1f} s, {lease:.1f} of them the old Lease, answers after {answers:.1f} s, "
        f"with new data after {new:.1f} s"
    )
    return {"operator_s": answers, "operator_leads_s": leads, "old_lease_s": lease, "operator_new_answer_s": new}


def _planner_killed(system: System, keys: Any) -> Figures:
    with _asking(system, keys, LOOKUP) as lookups, _asking(system, keys, PLANNED, clients=1) as planned:
        time.sleep(5)
        pid = _planner_pid(system)
        for child in descendants(pid):
            if _name(child) == "java":
                os.kill(child, signal.SIGKILL)
        time.sleep(30)
    progress(f"planner's JVMs killed: {lookups} of lookups, {planned} of new statements")
    return {
        "planner_failed_queries": float(len(lookups.failures) + len(planned.failures)),
        "planner_lookup_max_s": max(lookups.seconds),
        "planner_statement_max_s": max(planned.seconds),
    }


def _ingester_killed(system: System, keys: Any) -> Figures:
    uid = _ingester(system)
    with _asking(system, keys, LOOKUP) as lookups:
        time.sleep(3)
        os.kill(_pid(system, uid), signal.SIGKILL)
        gap, killed_ms = _gap(system), int(time.time() * 1e3)
        progress(f"ingester killed: the table goes on after {gap:.1f} s")
        began = time.monotonic()
        _until("the replica is hydrated again", lambda: _hydrated_on(system, [uid], killed_ms))
        hydrated = time.monotonic() - began + gap
    progress(f"ingester killed: hydrated again after {hydrated:.1f} s, {lookups}")
    return {
        "ingestion_gap_s": gap,
        "stalest_answer_s": max(lookups.ages),
        "query_p99_s": float(np.percentile(lookups.seconds, 99)),
        "query_p50_s": float(np.percentile(lookups.seconds, 50)),
        "query_max_s": max(lookups.seconds),
        "failed_queries": float(len(lookups.failures)),
        "rehydrated_s": hydrated,
    }


def _ingester_frozen(system: System, keys: Any) -> Figures:
    pid = _pid(system, _ingester(system))
    members = {pid, *descendants(pid)}
    with _asking(system, keys, LOOKUP) as lookups:
        time.sleep(3)
        _signal(members, signal.SIGSTOP)
        try:
            gap = _gap(system)
        finally:
            _signal(members, signal.SIGCONT)
        time.sleep(3)
    progress(f"ingester frozen: the table goes on after {gap:.1f} s, {lookups}")
    return {
        "frozen_ingestion_gap_s": gap,
        "frozen_stalest_answer_s": max(lookups.ages),
        "frozen_query_p99_s": float(np.percentile(lookups.seconds, 99)),
    }


# --- queries while it goes on ---


class Trouble(Exception):
    """The system does not get there."""


@dataclass
class Asked:
    """The experience of clients: seconds of each answer, its age (seconds) when it came, and failures."""

    seconds: list[float] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def ask(self, client: GatewayClient, sql: str) -> None:
        began = time.monotonic()
        try:
            answer = client.ask(sql)
        except grpc.RpcError as error:
            self.failures.append(f"{error.code()}: {error.details()}")
        else:
            self.ages.append(time.time() - answer.as_of / 1e3)
        self.seconds.append(time.monotonic() - began)

    def __str__(self) -> str:
        p50, p99 = np.percentile(self.seconds, (50, 99))
        failed = f"; {len(self.failures)} failed, the first: {self.failures[0]}" if self.failures else ""
        return (
            f"{len(self.seconds)} queries, p50 {p50:.3f} s, p99 {p99:.2f} s, the longest {max(self.seconds):.1f} s, "
            f"the stalest answer {max(self.ages, default=0):.1f} s old{failed}"
        )


@contextmanager
def _asking(system: System, keys: Any, sql: str, clients: int = CLIENTS) -> Iterator[Asked]:
    """Clients ask until the block ends; what they are asking then is waited for."""
    asked, ended = Asked(), threading.Event()

    def one(client: GatewayClient, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not ended.wait(PAUSE_SECONDS):
            asked.ask(client, sql.format(key=int(rng.choice(keys))))

    with ExitStack() as stack:
        threads = []
        for number in range(clients):
            client = stack.enter_context(client_of(system))
            client.ask(sql.format(key=int(keys[0])))
            threads.append(threading.Thread(target=one, args=(client, number)))
        for thread in threads:
            thread.start()
        try:
            yield asked
        finally:
            ended.set()
            for thread in threads:
                thread.join()


# --- what is read off the system ---


def _gap(system: System) -> float:
    """Seconds from now until the source's table goes on."""
    began = time.monotonic()
    table = open_shard(f"{system.location}/{NAMESPACE}/tpch/lineitem/v1")
    upper = table.refresh().upper
    _until("the source's table goes on", lambda: table.refresh().upper > upper)
    return time.monotonic() - began


def _uids(system: System) -> list[str]:
    return [system.get("computereplica", name)["metadata"]["uid"] for name in ("r1", "r2")]


def _ingester(system: System) -> str:
    """The uid of the ComputeReplica that ingests."""
    replica = system.get("datasource", "tpch")["status"]["ingester"]["replica"]
    return str(system.get("computereplica", replica)["metadata"]["uid"])


def _pid(system: System, uid: str) -> int:
    return system.replica_pids()[uid]


def _hydrated_on(system: System, uids: Sequence[str], after_ms: int) -> bool:
    """Whether these replicas have all exports, at or after this time."""
    names = {name for name in ("r1", "r2") if system.get("computereplica", name)["metadata"]["uid"] in uids}
    frontiers = [c for c in system.live_frontiers().values() if c["kind"] != "table"]
    found = [{r["replica"] for r in c.get("replicas", []) if _is_past(r, after_ms)} for c in frontiers]
    return bool(found) and all(names <= there for there in found)


def _is_past(on: dict[str, Any], after_ms: int) -> bool:
    """Whether an export is hydrated on a replica and past this time."""
    return "hydrated_percent" not in on and int(on.get("write", 0)) > after_ms


def _planner_pid(system: System) -> int:
    return int(json.loads((system.home / "operator" / "planner" / "process.json").read_text())["pid"])


def _logged(log: Path, begin: int, text: str) -> float:
    """When a line with this text was logged, after so many bytes: seconds since 1970."""
    lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    stamp = next(line for line in lines if text in line)[: len("2026-01-01 00:00:00,000")]
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _view(system: System) -> pa.Table:
    at = open_shard(str(system.shard("table", "table"))).refresh().upper - 1
    return system.contents("table", "table", at)


def _check(system: System, keys: Any) -> None:
    """Rows of some keys are those of the view's table at the same time."""
    with client_of(system) as client:
        answers = {int(key): client.ask(LOOKUP.format(key=key)) for key in keys[:: max(len(keys) // CHECKED, 1)]}
    view = open_shard(str(system.shard("table", "table")))
    for key, answer in answers.items():
        wait_for("the view's table", lambda at=answer.as_of: view.refresh().upper > at, system.log)
        whole = expanded(system.contents("table", "table", answer.as_of))
        wanted = whole.filter(pa.array(whole.column("l_orderkey").to_numpy() == key))
        if rows_of(answer.table()) != rows_of(wanted):
            raise WrongAnswer(f"order {key} at {answer.as_of}: {answer.table()}, the view's table has {wanted}")


def _until(what: str, holds: Callable[[], object]) -> None:
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > BOUND:
            raise Trouble(f"{what}: not within {BOUND:.0f} s")
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
