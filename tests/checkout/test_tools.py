"""A missing tool is reported in one line, with the command that installs it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(tool: str, *arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of the checkout with `folder` first on PATH."""
    return subprocess.run(
        [ROOT / "tools" / tool, *arguments],
        env={"PATH": f"{folder}:{os.defpath}", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('java version "21.0.2" 2024-01-16 LTS', True),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17" 2021-09-14', True),
        ('openjdk version "11.0.20" 2023-07-18', False),
        ('openjdk version "1.8.0_392"', False),
        ("nonsense", False),
    ],
)
def test_java_is_accepted_from_17_on(tmp_path: Path, version: str, accepted: bool) -> None:
    """Java 8 calls itself 1.8; the version is not always on the first line; JAVA_HOME goes before PATH."""
    script(tmp_path / "home" / "bin" / "java", f"cat >&2 <<'E'\n{version}\nE")
    answer = run("check-java", folder=tmp_path, JAVA_HOME=str(tmp_path / "home"))
    assert (answer.returncode == 0) == accepted
    if not accepted:
        assert answer.stderr.count("\n") == 1
        assert "apt-get install openjdk-17-jre-headless" in answer.stderr


def test_no_java_at_all_is_said_with_the_remedy(tmp_path: Path) -> None:
    """A JAVA_HOME that is gone is no Java."""
    answer = run("check-java", folder=tmp_path, JAVA_HOME=str(tmp_path / "gone"))
    assert answer.returncode == 1
    assert answer.stderr.startswith("Java is missing")
    assert answer.stderr.count("\n") == 1


def test_a_python_too_old_is_said_with_the_remedy(tmp_path: Path) -> None:
    """Before anything is created."""
    python = script(tmp_path / "python3", '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    answer = run("make-venv", str(tmp_path / "venv"), folder=tmp_path, PYTHON=str(python))
    assert answer.returncode == 1
    assert answer.stderr.startswith("Python 3.11 or newer is needed (Python 3.9.2): ")
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_is_told_which_package_to_install(tmp_path: Path) -> None:
    """Debian and Ubuntu ship the module apart."""
    python = script(tmp_path / "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    answer = run("make-venv", str(tmp_path / "venv"), folder=tmp_path, PYTHON=str(python))
    assert answer.returncode == 1
    assert "apt-get install python3-venv" in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize(("fails", "ended"), [(False, 0), (True, 2)])
def test_the_check_of_every_change_is_make_test_and_an_eighth_of_the_slow_tests(
    tmp_path: Path, fails: bool, ended: int
) -> None:
    """The eighth follows from the commit. Where `make test` fails, nothing else is run."""
    (check := tmp_path / ".ci" / "run").parent.mkdir()
    shutil.copy(ROOT / ".ci" / "run", check)
    script(tmp_path / "make", f'echo "$@" >>calls; exit {ended}')
    script(tmp_path / "git", "echo 000affffffffffffffffffffffffffffffffffff")
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run([check], env=environ, check=False).returncode == ended
    slow = [] if fails else ["test-slow EIGHTH=3 LANES=--slow-minutes=20"]
    assert (tmp_path / "calls").read_text().splitlines() == ["test", *slow]


def test_the_list_of_targets_names_those_of_users() -> None:
    listed = subprocess.run(["make", "-C", ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "test-fast", "venv", "control-plane"):
        assert f"  {target} " in listed
