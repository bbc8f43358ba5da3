"""The demo's own processes: the operator, the feeder that brings the flights, and the supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.errors import StartFailed, StopFailed
from tidemark_devcluster.supervision import process as supervisor_process
from tidemark_devcluster.supervision.plane import PlaneGroup
from tidemark_devcluster.supervision.process import SUPERVISOR
from tidemark_devcluster.supervision.record import RestartRecord
from tidemark_devcluster.supervision.supervisor import Group

OPERATOR, FEEDER = "operator", "feeder"
_GRACE_SECONDS = 20.0
_STOP_SECONDS = 120.0
_TAIL_LINES = 12


def start_operator(home: DemoHome) -> None:
    """Runs the operator with the process orchestrator, unless it runs."""
    options = {
        "--kubeconfig": home.kubeconfig,
        "--orchestrator": "process",
        "--state-dir": home.operator_state,
        "--gateway-file": home.gateway_file,
    }
    words = [str(word) for option in options.items() for word in option]
    _ensure(home, OPERATOR, ["-m", "tidemark_operator", *words])


def start_feeder(home: DemoHome, seconds_per_month: float) -> None:
    """Runs the feeder, unless it runs; one that has nothing more to bring ends at once."""
    words = ["feed", "--home", str(home.root), "--seconds-per-month", str(seconds_per_month)]
    _ensure(home, FEEDER, ["-m", "tidemark_devcluster.demo", *words])


class OperatorGroup:
    """The operator as a supervised group. An operator whose kubeconfig has changed (the API server could not have its
    port again) is ended, and counts as died."""

    def __init__(self, home: DemoHome) -> None:
        self._home, self._kubeconfig = home, _text(home)

    def died(self) -> Sequence[str]:
        pid_file, kubeconfig = self._home.pid_file(OPERATOR), _text(self._home)
        running = processes.running(pid_file)
        if running is not None and kubeconfig != self._kubeconfig:
            processes.stop(running, _GRACE_SECONDS)
            running = None
        self._kubeconfig = kubeconfig
        return [OPERATOR] if running is None and pid_file.exists() else []

    def repair(self) -> Sequence[str]:
        start_operator(self._home)
        return [OPERATOR]


def start_supervisor(home: DemoHome) -> None:
    """Have a process of its own supervise the demo, unless one does."""
    words = ["-m", "tidemark_devcluster.demo", "supervise", "--home", str(home.root)]
    files = (home.log(SUPERVISOR), home.pid_file(SUPERVISOR))
    supervisor_process.start(words, home.root, *files, RestartRecord(home.restarts))


def supervise(home: DemoHome) -> None:
    """Restart the demo's programs when they die, until SIGTERM. The feeder ends by itself and is not restarted."""
    plane: list[Group] = [] if home.existing_cluster.exists() else [PlaneGroup(home.plane())]
    groups = [*plane, OperatorGroup(home)]
    supervisor_process.supervise(groups, RestartRecord(home.restarts), home.log(SUPERVISOR))


def _text(home: DemoHome) -> str:
    return home.kubeconfig.read_text(encoding="utf-8") if home.kubeconfig.exists() else ""


def check_running(home: DemoHome, name: str) -> None:
    """Raises StartFailed with the end of its log when it is not alive, and no supervisor is there to start it again."""
    if processes.running(home.pid_file(name)) is None and processes.running(home.pid_file(SUPERVISOR)) is None:
        log = home.log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        raise StartFailed(f"the {name} ended; {home.log(name)} ends:\n" + "\n".join(log[-_TAIL_LINES:]))


def stop(home: DemoHome, name: str) -> None:
    identity = processes.running(home.pid_file(name))
    if identity is not None:
        processes.stop(identity, _GRACE_SECONDS)
    home.pid_file(name).unlink(missing_ok=True)


def _ensure(home: DemoHome, name: str, arguments: Sequence[str]) -> None:
    if processes.running(home.pid_file(name)) is not None:
        return
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *arguments]
    processes.start(command, environment, home.root, home.log(name), home.pid_file(name), die_with_starter=False)


def stop_operated(home: DemoHome) -> None:
    """Ends the replicas and the planner, which outlive their operator on purpose."""
    command = [sys.executable, "-m", "tidemark_operator.orchestrator.local.stop", str(home.operator_state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_STOP_SECONDS)
    if done.returncode != 0:
        raise StopFailed(f"replicas could not be ended: {done.stderr.strip()[-500:]}")
