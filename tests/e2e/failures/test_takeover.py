"""Another operator takes over: replicas run on, and none computes anything again.

Of two operators one leads, and the other takes over whatever happens to the first. A replica that lags when the
operator is replaced goes on from its own as_of:

r1 ─────────────────────────────► since of the view
r2 ── JVM stopped ─┤              it answers, and does no step; it reads from before that since
                      operator: SIGKILL, another one
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.failures.test_crash_processes import STATUS
from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tests.e2e.system import System, wait_for
from tests.waiting import BOUND
from tidemark_persist import open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages.responses import Description

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]
NAMES = ("r1", "r2")


@pytest.fixture(scope="module")
def system(own_system: System) -> System:
    return own_system


def lease(system: System) -> dict[str, object]:
    spec: dict[str, object] = json.loads(system.kubectl("get", "lease", "tidemark-operator", "-o", "json"))["spec"]
    return spec


def led_by(system: System, process: subprocess.Popen[bytes]) -> bool:
    """The process is in its name, which is HOST-PID-RANDOM."""
    return str(lease(system)["holderIdentity"]).rsplit("-", 2)[1:2] == [str(process.pid)]


def log_of(system: System) -> str:
    return (system.home / "operator.log").read_text()


@pytest.fixture
def standby(system: System) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts operators like the system's own, which stand by; what is left of them ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        output = log_of(system).count("standing by: ")
        with (system.home / "operator.log").open("ab") as log:
            started.append(
                subprocess.Popen(system.operator_command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )
        wait_for("it to stand by", lambda: log_of(system).count("standing by: ") > output, system.log)
        return started[-1]

    yield start
    for process in started:
        if process is not system.operator and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(BOUND)


def test_crash_of_the_leader_and_the_standby_takes_over(
    system: System, standby: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """Killed; told to end; and stopped, so that its Lease runs out, and then going on without knowing: it finds that
    it has lost, and ends. The view is kept up to date by one process all the time."""
    system.dataflow("nations", "SELECT count(*) AS n FROM tpch.nation")
    system.wait_hydrated("nations")
    pids, computed = system.replica_pids(), system.replica_says().hydrations

    for harm in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        leader, term = system.operator, int(str(lease(system)["leaseTransitions"]))
        assert leader is not None
        other = standby()
        assert led_by(system, leader)
        os.kill(leader.pid, harm)
        wait_for("the other to lead", lambda other=other: led_by(system, other), system.log)
        system.operator = other

        shown = system.frontier("nations")  # what the other writes is later
        wait_for("the status to move on", lambda shown=shown: system.frontier("nations") > shown, system.log)
        assert lease(system)["leaseTransitions"] == term + 1
        if harm is signal.SIGSTOP:
            leader.send_signal(signal.SIGCONT)
        assert leader.wait(BOUND) == {signal.SIGKILL: -9, signal.SIGTERM: 0, signal.SIGSTOP: 3}[harm]

    wait_for("the gateway to answer", lambda: system.live_frontiers().get("nations.nations"), system.log)
    assert system.query("SELECT n FROM nations")["rows"] == [{"n": 25}]
    assert system.replica_pids() == pids
    assert system.replica_says().hydrations == computed
    system.kubectl("delete", "dataflow", "nations")


@pytest.fixture(scope="module")
def both(system: System) -> System:
    """Two replicas with a view, an index and a view over that. The second one does nothing without its JVM."""
    limits = {"limits": {"cpu": 2, "memory": "1536Mi"}}
    system.apply("ComputeReplica", "r2", {"instance": "default", "resources": limits, "sparkOnly": True})
    system.wait_condition("computereplica", "r2", "Online")
    system.dataflow("status", STATUS)
    system.dataflow("counted", "SELECT o_orderstatus, count(*) AS n FROM tpch.orders GROUP BY o_orderstatus", index={})
    system.wait_hydrated("counted")
    system.dataflow("many", "SELECT o_orderstatus FROM counted WHERE n > 10")
    system.wait_hydrated("status", "counted", "many")
    wait_for("both to have these three", lambda: all(has_all(says(system, r)) for r in NAMES), system.log)
    return system


def pid(system: System, name: str) -> int:
    return system.replica_pids()[system.get("computereplica", name)["metadata"]["uid"]]


def says(system: System, name: str) -> Description:
    return system.process_says(pid(system, name))


def has_all(description: Description) -> bool:
    """Whether its dataflows are the three, and each was hydrated there."""
    return len(description.dataflows) == 3 and description.hydrations >= 3


def children(parent: int) -> Iterator[int]:
    """Processes below a process; threads come and go while they are looked at."""
    for known in Path(f"/proc/{parent}/task").glob("*/children"):
        begun: list[str] = []
        with suppress(OSError):
            begun = known.read_text().split()
        for child in map(int, begun):
            yield child
            yield from children(child)


def jvm(parent: int) -> int:
    return next(p for p in children(parent) if Path(f"/proc/{p}/comm").read_text().strip() == "java")


def reads_from(description: Description) -> Frontier:
    """The earliest time of any input that it still reads."""
    known = [d.reads_from for d in description.dataflows if d.reads_from is not None]
    assert len(known) == len(description.dataflows) == 3
    return min(known)


def readable(description: Description) -> Frontier:
    """From when on all of its exports can be read."""
    return max(c.since for c in description.collections)


def test_crash_of_the_operator_while_a_replica_is_behind_computes_nothing_again(both: System) -> None:
    """It is greeted by the next operator while it stands still, which has it go on from there."""
    system = both
    view, before = open_shard(str(system.shard("status", "status"))), {r: says(system, r) for r in NAMES}
    stopped = jvm(pid(system, "r2"))
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_for(
            "the first to be ahead", lambda: readable(says(system, "r1")) > reads_from(says(system, "r2")), system.log
        )
        system.kill_operator()
        upper = view.refresh().upper
        wait_for("the first to go on alone", lambda: view.refresh().upper > upper, system.log)
        system.start_operator()
        for name in NAMES:
            epoch = before[name].epoch
            assert epoch is not None
            wait_for(
                f"{name} to be greeted",
                lambda name=name, epoch=epoch: (e := says(system, name).epoch) is not None and e > epoch,
                system.log,
            )
        upper = view.refresh().upper
        wait_for("the first to go on", lambda: view.refresh().upper > upper, system.log)
        behind = says(system, "r2")
        assert reads_from(behind) < readable(says(system, "r1"))
    finally:
        os.kill(stopped, signal.SIGCONT)

    ahead = readable(says(system, "r1"))
    wait_for("the second to catch up", lambda: reads_from(says(system, "r2")) > ahead, system.log)
    for name in NAMES:
        message = says(system, name)
        assert (message.incarnation, message.hydrations) == (before[name].incarnation, before[name].hydrations), (
            system.log()
        )
        wait_for(
            "its status to say so",
            lambda name=name: system.get("computereplica", name)["status"].get("hydrations") == before[name].hydrations,
            system.log,
        )
    at = view.refresh().upper - 1
    orders = {"tpch.orders": expanded(system.contents("tpch", "orders", at))}
    assert rows_of(expanded(system.contents("status", "status", at))) == by_duckdb(STATUS, orders)
    count = "SELECT o_orderstatus, count(*) AS n FROM tpch.orders GROUP BY o_orderstatus"
    for name in NAMES:
        asked = ("query", "SELECT o_orderstatus, n FROM counted", "-n", system.namespace, "-o", "json")
        done = system.tidemark(*asked, "--replica", name, "--as-of", str(at))
        assert done.returncode == 0, done.stderr + system.log()
        rows = [tuple(map(str, row.values())) for row in json.loads(done.stdout)["rows"]]
        assert sorted(rows, key=repr) == by_duckdb(count, orders)
