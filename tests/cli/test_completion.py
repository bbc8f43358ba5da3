"""Completion: by bash itself with the script of `completion`, and by kubectl itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_commands import Scripted, gateway
from tests.waiting import BOUND
from tidemark_cli.completion import SHELLS, kubectl_answer
from tidemark_cli.main import COMMANDS, main, tidemark
from tidemark_devcluster.control_plane.control_plane import ControlPlane

__all__ = ["gateway"]
PROGRAMS = {"tidemark": "tidemark_cli", "kubectl-tidemark": "tidemark_cli"}
PROGRAMS["kubectl_complete-tidemark"] = "tidemark_cli.kubectl_complete"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the programs that the package installs."""
    for name, module in PROGRAMS.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(programs: Path, *command: str) -> str:
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=BOUND, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tidemark qu", ["query"]),
        ("tidemark query --as", ["--as-of"]),
        ("tidemark frontiers -o ", ["table", "json", "csv", "yaml"]),
        ("tidemark copy delays --format p", ["parquet"]),
        ("tidemark completion z", ["zsh"]),
    ],
)
def test_bash_completes_the_program(programs: Path, line: str, expected: list[str]) -> None:
    """Its own function, with the words that readline hands it."""
    words = line.split(" ")
    script = (
        "source <(tidemark completion bash)\n"
        f"COMP_WORDS=({' '.join(word or chr(39) * 2 for word in words)}) COMP_CWORD={len(words) - 1}\n"
        "complete -p tidemark | grep -q -- '-F _tidemark_completion'\n"
        "compopt() { :; }\n"
        '_tidemark_completion tidemark\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert run(programs, "bash", "-euo", "pipefail", "-c", script).splitlines() == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(shell: str, programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read by the shell itself, where this machine has it."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out

    assert "_TIDEMARK_COMPLETE" in script
    if shutil.which(shell):
        (programs / "script").write_text(script)
        run(programs, shell, "-n", str(programs / "script"))


def test_kubectl_is_answered_in_its_own_form() -> None:
    """A candidate and its description on each line, then whether names of files may follow."""
    assert kubectl_answer(tidemark, ["fron"]) == f"frontiers\t{COMMANDS['frontiers']}\n:4\n"
    assert kubectl_answer(tidemark, []).count("\n") == len(COMMANDS) + 1
    assert kubectl_answer(tidemark, ["query", "SELECT 1", "-o", ""]) == "table\njson\ncsv\nyaml\n:4\n"
    assert kubectl_answer(tidemark, ["why", "a", "--token-file", ""]) == ":0\n"


@pytest.mark.cluster
def test_kubectl_completes_the_plugin(programs: Path, control_plane: ControlPlane) -> None:
    """kubectl calls kubectl_complete-tidemark, and prints what it read."""
    kubectl = str(control_plane.layout.kubectl)
    assert run(programs, kubectl, "__complete", "tidemark", "fron").startswith(
        f"frontiers\t{COMMANDS['frontiers']}\n:4"
    )
    assert run(programs, kubectl, "__complete", "tidemark", "query", "--as").startswith("--as-of\t")


KUBECTL = """#!/bin/sh
case "$*" in
"get namespaces "*) echo namespace/team-a; echo namespace/team-b; echo namespace/other ;;
"get datasources.compute.tidemark.dev "*"--namespace team-a"*) echo datasource.compute.tidemark.dev/flights ;;
"get computeinstances.compute.tidemark.dev "*) echo computeinstance.compute.tidemark.dev/default ;;
"get dataflows.compute.tidemark.dev "*) echo $$ >"$0.pid"; exec sleep 1000 ;;
*) echo refused >&2; exit 1 ;;
esac
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lists names, or never answers."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["why", "la"], ["lake", "lake.a", "lake.b", "lake.c"]),
        (["subscribe", "--progress", "del"], ["delays"]),
        (["copy", "-n", "empty", ""], []),
        (["files", "-n", "team-a", ""], ["flights"]),
        (["insert", "-n", "team-b", ""], []),
        (["frontiers", "-n", "te"], ["team-a", "team-b"]),
        (["query", "SELECT 1", "--instance", "d"], ["default"]),
        (["subscribe", "--server", "127.0.0.1:1", "--token-file", "/nowhere", ""], []),
        (["subscribe", "--server", "a:1", "--gateway-file", "b", ""], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_names_are_those_of_the_cluster_and_of_the_gateway(
    gateway: Scripted, kubectl: None, words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the options that the line has already; what cannot be asked has none, and no error is printed."""
    assert kubectl_answer(tidemark, words) == "".join(f"{name}\n" for name in [*expected, ":4"])
    assert capsys.readouterr().err == ""


def test_what_is_typed_meanwhile_is_left_to_the_shell(tmp_path: Path) -> None:
    """A plugin of kubectl that logs in finds nobody to ask."""
    (tmp_path / "kubectl").write_text("#!/bin/sh\nread -r typed && echo computeinstance.compute.tidemark.dev/$typed\n")
    (tmp_path / "kubectl").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tidemark_cli.kubectl_complete", "query", "-n", "a", "SELECT 1", "--instance", ""],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        input="typed\n",
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=True,
    )
    assert done.stdout == ":4\n"


def test_a_shell_does_not_wait_for_ever(kubectl: None, tmp_path: Path) -> None:
    """And the kubectl that did not answer is ended."""
    began = time.monotonic()
    assert kubectl_answer(tidemark, ["explain", "-n", "team-a", ""]) == ":4\n"
    assert time.monotonic() - began < BOUND / 2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "kubectl.pid").read_text()), 0)
