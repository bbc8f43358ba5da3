"""`make demo`, as a user runs it: up, up again, what is killed comes back, down; its last lines are true, and the
tutorial is followed on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.system import is_to_be_asked_again
from tests.runbooks import tutorial
from tests.waiting import BOUND, until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

PATIENCE_SECONDS = 900


def demo(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "tidemark_devcluster.demo", *arguments, "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes_of(home: Path) -> dict[int, str]:
    """Command lines that name the demo's folder: every process that it starts does."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(home) in line and path.parent.name != str(os.getpid()):
            found[int(path.parent.name)] = line
    return found


def replicas_of(home: Path) -> set[int]:
    """Each leads a session; what it is just about to start looks like it, and does not."""
    found = set()
    for pid, line in processes_of(home).items():
        with suppress(ProcessLookupError):
            if "tidemark_replica" in line and os.getsid(pid) == pid:
                found.add(pid)
    return found


def run_until_answered(command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Again where a busy planner says so, or the operator is not back yet."""
    answers: list[subprocess.CompletedProcess[str]] = []

    def answered() -> bool:
        answers.append(
            subprocess.run(command, env=variables, capture_output=True, text=True, timeout=BOUND, check=False)
        )
        return not is_to_be_asked_again(answers[-1].stderr)

    until(answered)
    return answers[-1]


def status(home: Path) -> dict[str, list[str]]:
    """The table of `tidemark-devcluster status`: by program its words."""
    command = [sys.executable, "-m", "tidemark_devcluster", "status", "--state", str(home / "control-plane")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    lines = (line.split() for line in done.stdout.splitlines()[1:])
    return {words[0]: [words[0], words[1], " ".join(words[2:4]), words[4]] for words in lines if words[1].isdecimal()}


def kill(home: Path, *names: str) -> dict[str, str]:
    """SIGKILL to programs of the demo; the pids that they had."""
    pids = {name: status(home)[name][1] for name in names}
    for pid in pids.values():
        os.kill(int(pid), signal.SIGKILL)
    return pids


EDIT = "5s"


def kubectl(home: Path, *arguments: str, stdin: str = "") -> str:
    command = [str(home / "bin" / "kubectl"), f"--kubeconfig={home / 'kubeconfig'}", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=BOUND, check=True).stdout


def edited_and_broken(home: Path) -> None:
    """A user edits an example, and applies a Dataflow that can never hydrate: the demo touches neither."""
    kubectl(
        home, "patch", "dataflow", "carriers", "--type=merge", "-p", json.dumps({"spec": {"readPolicy": {"lag": EDIT}}})
    )
    broken = {
        "apiVersion": json.loads(kubectl(home, "get", "dataflow", "carriers", "-o", "json"))["apiVersion"],
        "kind": "Dataflow",
        "metadata": {"name": "broken"},
        "spec": {"instance": "default", "sql": "SELECT no FROM nothing", "materializedView": {}},
    }
    kubectl(home, "create", "-f", "-", stdin=json.dumps(broken))


def edit_of(home: Path) -> str:
    return str(json.loads(kubectl(home, "get", "dataflow", "carriers", "-o", "json"))["spec"]["readPolicy"]["lag"])


@pytest.mark.usefixtures("control_plane_binaries")
def test_the_demo_comes_up_is_reused_and_goes_down(tmp_path: Path) -> None:
    """It shows rows and says what to type; a second run adopts what runs; the operator and etcd are killed and come
    back; nothing is left after it is taken down."""
    home = tmp_path / "home"
    try:
        first = demo(home, "up", "--seconds-per-month", "0.5", "--looks", "1")
        assert "United Air Lines" in first
        assert f"export KUBECONFIG={home / 'kubeconfig'}" in first
        running = replicas_of(home)
        assert running
        edited_and_broken(home)
        assert "United Air Lines" in demo(home, "up", "--looks", "1")
        assert replicas_of(home) == running
        assert edit_of(home) == EDIT
        exported = {"KUBECONFIG": str(home / "kubeconfig"), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
        typed = "SELECT n_name, revenue FROM revenue ORDER BY revenue DESC LIMIT 5"
        command = ["kubectl", "tidemark", "query", typed, "-o", "json"]
        variables = {**os.environ, **exported}
        answer = run_until_answered(command, variables)
        assert (answer.returncode, answer.stdout.count("n_name")) == (0, 5), answer.stderr
        killed = kill(home, "etcd", "operator")
        until(lambda: killed.keys() <= {name for name, row in status(home).items() if row[3] == "1"})
        assert {status(home)[name][1] for name in killed}.isdisjoint(killed.values())
        answer = run_until_answered(command, variables)
        assert (answer.returncode, answer.stdout.count("n_name")) == (0, 5), answer.stderr
        assert replicas_of(home) == running
        tutorial.follow(tmp_path, variables)
    finally:
        demo(home, "down", "--delete")
    until(lambda: not processes_of(home))
    assert not home.exists()
