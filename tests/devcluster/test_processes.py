"""Processes that outlive their starter are found again, and no other is ever touched."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import BOUND
from tidemark_devcluster.control_plane.processes import (
    ProcessIdentity,
    parse_stat,
    recorded,
    resident_bytes,
    running,
    start,
    stop,
)

READY = 'echo ready >"$0"; exec sleep 300'
DEAF = 'trap "" TERM; echo ready >"$0"; while :; do sleep 300; done'


def started(folder: Path, script: str = READY, die_with_starter: bool = False) -> ProcessIdentity:
    """Start a shell script in the way of a server, and return when it has begun."""
    os.mkfifo(folder / "ready")
    command = ["/bin/sh", "-c", script, str(folder / "ready")]
    environment = {"PATH": os.defpath}
    identity = start(command, environment, folder, folder / "log", folder / "pid", die_with_starter)
    assert (folder / "ready").read_text() == "ready\n"
    return identity


def test_a_server_records_itself_before_it_begins(tmp_path: Path) -> None:
    """Whoever reads the pid file later means the same process as the starter."""
    identity = started(tmp_path)
    try:
        assert recorded(tmp_path / "pid") == identity
        assert running(tmp_path / "pid") == identity
        assert resident_bytes(identity) > 0
    finally:
        stop(identity, 5)
    assert running(tmp_path / "pid") is None
    assert resident_bytes(identity) == 0


STARTER = """
import os, sys
from pathlib import Path
from tidemark_devcluster.control_plane.processes import start
folder, die_with_starter = Path(sys.argv[1]), bool(sys.argv[2:])
server = ["/bin/sh", "-c", "echo ready; exec sleep 300"]
start(server, {"PATH": os.defpath}, folder, folder / "log", folder / "pid", die_with_starter)
sys.stdin.read()
"""


def another_starter(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], ProcessIdentity]:
    """Another program that starts a server and then lives until its standard input ends."""
    os.mkfifo(folder / "log")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTER, str(folder), *arguments]
    starter = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
    assert (folder / "log").open().readline() == "ready\n"
    identity = running(folder / "pid")
    assert identity is not None
    return starter, identity


def test_a_server_outlives_its_starter_and_is_found_by_the_next(tmp_path: Path) -> None:
    """Its starter is killed; the pid file is all that is left, and it suffices to end the server."""
    starter, identity = another_starter(tmp_path)
    starter.kill()
    starter.communicate()
    assert running(tmp_path / "pid") == identity
    stop(identity, 5)
    assert running(tmp_path / "pid") is None


def test_a_server_for_tests_dies_with_its_starter(tmp_path: Path) -> None:
    """SIGKILL of the test run leaves no server behind."""
    starter, identity = another_starter(tmp_path, "die with starter")
    server = os.pidfd_open(identity.pid)
    try:
        starter.kill()
        starter.communicate()
        ended, _, _ = select.select([server], [], [], BOUND)
        assert ended
        assert not identity.is_running()
    finally:
        os.close(server)


def test_a_recycled_pid_is_neither_adopted_nor_killed(tmp_path: Path) -> None:
    """The same pid with another start time, or from another boot, is somebody else."""
    other = subprocess.Popen(["/bin/sleep", "300"])
    try:
        stat = Path(f"/proc/{other.pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        truth = parse_stat(stat, boot)
        for false in (
            ProcessIdentity(truth.pid, truth.ticks - 1, boot),
            ProcessIdentity(truth.pid, truth.ticks, "earlier"),
        ):
            assert not false.is_running()
            stop(false, 5)
        assert truth.is_running()
        (tmp_path / "pid").write_text(f"earlier\n{stat}")
        assert running(tmp_path / "pid") is None
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_process_that_ended_but_was_not_reaped_does_not_run() -> None:
    """A zombie still has its pid and start time."""
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    identity = parse_stat(Path(f"/proc/{child.pid}/stat").read_text(), boot)
    assert identity.is_running()
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_running()
    child.wait()


def test_a_server_deaf_to_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    """`down` has a bound."""
    identity = started(tmp_path, DEAF)
    stop(identity, 0.2)
    assert not identity.is_running()


def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    """The second time there is nobody to stop."""
    identity = started(tmp_path)
    stop(identity, 5)
    stop(identity, 5)


@pytest.mark.parametrize("content", [None, "", "boot\n", "boot\n12 (sh) S 1", "boot\nnonsense\n", "a\nb\nc\n"])
def test_a_torn_pid_file_names_no_process(tmp_path: Path, content: str | None) -> None:
    """It was written by a shell that died before it became the server."""
    if content is not None:
        (tmp_path / "pid").write_text(content)
    assert recorded(tmp_path / "pid") is None


def test_a_process_name_with_brackets_and_spaces_is_read() -> None:
    """The kernel writes the name between brackets, whatever it holds."""
    stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 2 3"
    assert parse_stat(stat, "boot") == ProcessIdentity(77, 4711, "boot")
