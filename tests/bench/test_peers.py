"""Answers of other engines: times count only where the rows are right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.harness.answers import WrongAnswer
from bench.harness.workload.queries import Q5
from bench.peers import pathway_peer
from bench.peers.absent import PeerAbsent
from bench.peers.exchange import Handed, taken_back

BEFORE, AFTER = [(1, 200), (2, 50)], [(1, 300)]
PRINTED = b'{"wall": 900.0, "cpu": 1500.0}\nnot of ours\n{"wall": 2.0, "cpu": 3.0, "rows": 100}\n'


@pytest.fixture
def handed(tmp_path: Path) -> Handed:
    """To an engine that gave back the right rows, in another order."""
    (tmp_path / "hydrated.csv").write_text("2,50\n1,200\n")
    (tmp_path / "final.csv").write_text("1,300\n")
    return Handed(Q5, tmp_path, BEFORE, AFTER)


def test_right_rows_count_with_their_times(handed: Handed) -> None:
    run = taken_back("it", handed, PRINTED)
    assert run.hydration.wall == 900.0
    assert [cost.cpu for cost in run.rounds[100]] == [3.0]


@pytest.mark.parametrize("file", ["hydrated", "final"])
@pytest.mark.parametrize("rows", ["1,201\n2,50\n", "1,200\n", "1,200\n1,200\n2,50\n"], ids=["other", "less", "twice"])
def test_must_fail_on_planted_wrong_rows(handed: Handed, file: str, rows: str) -> None:
    """A wrong row of the hydration is found, and one of the end."""
    (handed.folder / f"{file}.csv").write_text(rows)
    with pytest.raises(WrongAnswer, match=f"it, {file}"):
        taken_back("it", handed, PRINTED)


@pytest.mark.parametrize(("code", "raised"), [(3, WrongAnswer), (1, PeerAbsent)], ids=["other rows", "it broke"])
def test_an_engine_that_never_had_the_rows_is_wrong_and_not_absent(
    code: int, raised: type[Exception], handed: Handed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of the engine says so by its exit code."""
    (folder := tmp_path / "installed" / "bin").mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    (program := tmp_path / "program.py").write_text(f"raise SystemExit({code})")
    monkeypatch.setattr(pathway_peer, "_PROGRAM", program)
    monkeypatch.setattr(pathway_peer, "_folder", lambda: tmp_path / "installed")
    with pytest.raises(raised):
        pathway_peer.run(handed)
