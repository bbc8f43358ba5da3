"""Two operators: one leads, the other takes over whatever happens to the first; replicas run on and compute nothing
again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.system import System, wait_for
from tests.waiting import BOUND

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]


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
