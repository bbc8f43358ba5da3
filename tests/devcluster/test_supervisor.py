"""The supervisor restarts what died, waits longer each time, and leaves alone what was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.replica.process import living
from tests.waiting import until
from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.control_plane.commands import APISERVER, CONTROLLER_MANAGER, ETCD, SERVERS
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.errors import StartFailed
from tidemark_devcluster.programs.build import Binaries
from tidemark_devcluster.supervision import plane as supervised
from tidemark_devcluster.supervision import table
from tidemark_devcluster.supervision.process import SUPERVISOR
from tidemark_devcluster.supervision.record import RestartRecord
from tidemark_devcluster.supervision.supervisor import HEALTHY_SECONDS, MAX_PAUSE_SECONDS, Supervisor

LIVES, ENDS = ("/bin/sleep", "300"), ("/bin/true",)


@dataclass
class OneProgram:
    """A group of one program, a real process. `broken`: what a repair raises."""

    folder: Path
    command: Sequence[str] = LIVES
    broken: StartFailed | None = None
    repairs: int = 0

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"

    def died(self) -> Sequence[str]:
        return ["one"] if self.pid_file.exists() and processes.running(self.pid_file) is None else []

    def repair(self) -> Sequence[str]:
        self.repairs += 1
        if self.broken is not None:
            raise self.broken
        folder = self.folder
        processes.start(self.command, {"PATH": os.defpath}, folder, folder / "log", self.pid_file, False)
        if self.command == ENDS:  # the test's clock, which moves on at once, must not outrun its end
            until(self.died)
        return ["one"]

    def kill(self) -> int:
        """SIGKILL; the pid that it had."""
        identity = processes.running(self.pid_file)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        until(lambda: processes.running(self.pid_file) is None)
        return identity.pid


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Supervised:
    """A program, the supervisor that looks after it, and its clock."""

    program: OneProgram
    record: RestartRecord
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor([self.program], self.record, self.clock)

    def restarts(self) -> int:
        return self.record.read().get("one", 0)

    def after(self, seconds: float) -> int:
        """Restarts after so many seconds, looked at twice a second."""
        for _ in range(int(2 * seconds)):
            self.clock.now += 0.5
            self.supervisor.step()
        return self.restarts()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Supervised]:
    program = OneProgram(tmp_path)
    program.repair()
    yield Supervised(program, RestartRecord(tmp_path / "restarts.json"))
    if (identity := processes.running(program.pid_file)) is not None:
        processes.stop(identity, 5)


def test_crash_a_killed_program_is_started_again_at_once(one: Supervised) -> None:
    assert one.after(1) == 0
    killed = one.program.kill()
    assert one.after(0.5) == 1
    identity = processes.running(one.program.pid_file)
    assert identity is not None
    assert identity.pid != killed


def test_a_program_that_was_stopped_stays_stopped(one: Supervised) -> None:
    """A program without a pid file was stopped by a user: the supervisor leaves it alone."""
    one.program.kill()
    one.program.pid_file.unlink()
    assert one.after(120) == 0


def test_a_program_that_keeps_ending_is_restarted_ever_more_rarely(one: Supervised) -> None:
    """After 0, 1, 3, 7, 15, 31 and 63 s, then once a minute."""
    one.program.kill()
    one.program.command = ENDS
    assert one.after(0.5) == 1
    assert one.after(63) == 7
    assert one.after(10 * MAX_PAUSE_SECONDS) == 17


def test_the_pause_is_forgotten_after_a_healthy_minute(one: Supervised) -> None:
    for restarts in (1, 2, 3):
        one.program.kill()
        assert one.after(0.5 if restarts == 1 else 5) == restarts
    one.after(2 * HEALTHY_SECONDS + 10)
    one.program.kill()
    assert one.after(0.5) == 4


def test_a_repair_that_fails_is_tried_again_and_is_no_restart(one: Supervised) -> None:
    one.program.kill()
    one.program.broken, before = StartFailed("no port"), one.program.repairs
    assert one.after(16) == 0
    assert 4 <= one.program.repairs - before <= 6
    one.program.broken = None
    assert one.after(16) == 1


def test_crash_of_the_supervisor_and_the_next_one_adopts(one: Supervised) -> None:
    """It starts no second program beside the one that runs."""
    running = processes.running(one.program.pid_file)
    other = Supervised(one.program, one.record)
    assert other.after(10) == 0
    assert processes.running(one.program.pid_file) == running


def test_the_table_tells_running_from_dead_and_stopped_programs(tmp_path: Path, one: Supervised) -> None:
    gone_file = tmp_path / "died"
    gone_file.write_text("")
    running = processes.running(one.program.pid_file)
    assert running is not None
    rows = [
        table.row("one", one.program.pid_file, 3, "https://127.0.0.1:1", tmp_path / "log"),
        table.row("two", gone_file, 0, "", tmp_path / "log"),
        table.row("three", tmp_path / "absent", 0, "", tmp_path / "log"),
    ]
    head, first, second, third = (line.split() for line in table.text(rows).splitlines())
    assert head == ["PROGRAM", "PID", "SINCE", "RESTARTS", "ADDRESS", "LOG"]
    assert first[:2] == ["one", str(running.pid)]
    assert first[-3:] == ["3", "https://127.0.0.1:1", str(tmp_path / "log")]
    assert second[:4] == ["two", "died", "-", "0"]
    assert third[:4] == ["three", "stopped", "-", "0"]


@pytest.mark.cluster
def test_crash_servers_of_a_control_plane_are_restarted_and_down_ends_them(
    tmp_path: Path, control_plane_binaries: Binaries
) -> None:
    """SIGKILL to etcd and to the API server: both come back on the same data and port; the supervisor too is ended by
    `down`, and restarts nothing."""
    state = tmp_path / "state"

    def devcluster(*arguments: str, check: bool = True) -> str:
        command = [sys.executable, "-m", "tidemark_devcluster", *arguments, "--state", str(state)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=check).stdout

    plane = ControlPlane(state)
    try:
        devcluster("up", "--no-fsync")
        plane.kubectl("create", "namespace", "kept")
        before, supervisor = plane.status(), processes.running(plane.layout.pid_file(SUPERVISOR))
        assert supervisor is not None
        for name in (ETCD, APISERVER):
            os.kill(before.pids[name], signal.SIGKILL)
        until(lambda: plane.status().ready and supervised.record_of(plane).read().keys() >= {ETCD, APISERVER})
        after = plane.status()
        assert (after.server, after.pids[CONTROLLER_MANAGER]) == (before.server, before.pids[CONTROLLER_MANAGER])
        assert plane.kubectl("get", "namespace", "kept", "-o", "name") == "namespace/kept\n"
        shown = {line.split()[0]: line.split() for line in devcluster("status").splitlines()}
        assert shown[ETCD][1] == str(after.pids[ETCD])
        assert shown[APISERVER][4:6] == ["1", str(after.server)]
        assert shown[SUPERVISOR][1] == str(supervisor.pid)
    finally:
        devcluster("down", "--delete")
    assert not living([*after.pids.values(), supervisor.pid])
    assert set(after.pids) == set(SERVERS)
    assert list(tmp_path.iterdir()) == []
