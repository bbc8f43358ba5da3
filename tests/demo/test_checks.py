"""What is missing is said in one line with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_devcluster.demo import checks
from tidemark_devcluster.demo.checks import MachineUnfit
from tidemark_devcluster.demo.main import main


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_no_java_is_said_with_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineUnfit, match="apt-get install openjdk") as raised:
        checks.check_java()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """With what it is and what is needed."""
    program(tmp_path, "java", f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineUnfit, match=r"version (11|1), and Spark needs 17"):
        checks.check_java()


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_a_new_enough_java_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """17 and 21 are what Spark supports."""
    program(tmp_path, "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    monkeypatch.setenv("PATH", str(tmp_path))
    checks.check_java()


def test_up_on_an_unfit_machine_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit status 1, no process."""
    monkeypatch.setenv("PATH", str(tmp_path))
    home = tmp_path / "home"

    assert main(["up", "--home", str(home)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list((home / "pids").iterdir()) == []
