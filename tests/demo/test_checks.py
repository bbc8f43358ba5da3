"""A missing requirement is reported in one line, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_devcluster.demo import checks
from tidemark_devcluster.demo.main import main
from tidemark_devcluster.programs.cache import GIB


@pytest.mark.parametrize("short_of", ["MEMORY", "DISK"])
def test_up_on_a_machine_that_is_too_small_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short_of: str
) -> None:
    """One line, exit status 1, no process."""
    monkeypatch.setattr(checks, short_of, 10**6 * GIB)

    assert main(["up", "--home", str(tmp_path / "home")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list((tmp_path / "home" / "pids").iterdir()) == []
