"""The demo's operator as a supervised program, and what `make demo` says of the programs it found."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from tests.waiting import until
from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.control_plane.processes import ProcessIdentity
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.demo.services import OPERATOR, OperatorGroup
from tidemark_devcluster.demo.status import compared, rows


def started(home: DemoHome) -> ProcessIdentity:
    """A process in the operator's place."""
    home.make()
    files = (home.root, home.log(OPERATOR), home.pid_file(OPERATOR))
    return processes.start(("/bin/sleep", "300"), {"PATH": os.defpath}, *files, die_with_starter=False)


def test_an_operator_that_was_killed_has_died_and_one_that_was_stopped_has_not(tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    group = OperatorGroup(home)
    assert list(group.died()) == []
    identity = started(home)
    assert list(group.died()) == []
    os.kill(identity.pid, signal.SIGKILL)
    until(lambda: list(group.died()) == [OPERATOR])
    home.pid_file(OPERATOR).unlink()
    assert list(group.died()) == []


def test_an_operator_of_a_moved_api_server_is_started_again(tmp_path: Path) -> None:
    """It would ask at the old port for ever."""
    home = DemoHome(tmp_path)
    home.kubeconfig.write_text("server: https://127.0.0.1:1")
    identity, group = started(home), OperatorGroup(home)
    assert list(group.died()) == []
    home.kubeconfig.write_text("server: https://127.0.0.1:2")
    assert list(group.died()) == [OPERATOR]
    assert not identity.is_running()


def test_make_demo_tells_running_from_dead_and_new_processes(tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    identity = started(home)
    try:
        (operator,) = (row for row in rows(home) if row.program == OPERATOR)
        before = [operator, replace(operator, program="etcd", pid=None, has_died=True)]
        after = [operator, *(replace(operator, program=name, pid=7) for name in ("etcd", "feeder"))]
        assert compared(before, after) == "found running: operator; started again: etcd; started: feeder"
    finally:
        processes.stop(identity, 5)
