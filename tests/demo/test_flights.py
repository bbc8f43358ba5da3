"""The feeder brings every flight exactly once, whole files only, whenever it is stopped."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidemark_devcluster.demo import flights

ROWS = {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16, "airports": 1_458}


def rows(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in folder.glob("*.csv"))


def test_all_months_hold_all_rows(tmp_path: Path) -> None:
    """A header in each file, a newline at each end, no row lost or moved to another month."""
    flights.feed(tmp_path, 0)

    assert {name: rows(tmp_path / name) for name in ROWS} == ROWS
    assert all(path.read_bytes().endswith(b"\n") for path in tmp_path.glob("*/*.csv"))
    with (tmp_path / "flights" / "2013-07.csv").open() as file:
        assert {row["month"] for row in csv.DictReader(file)} == {"7"}


def test_a_stopped_feeder_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Months that are there are neither waited for nor written again."""
    waits: list[float] = []

    def stop_after_two(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(flights, "time", SimpleNamespace(sleep=stop_after_two))  # not that of other threads
    with pytest.raises(KeyboardInterrupt):
        flights.feed(tmp_path, 3)
    assert flights.months_arrived(tmp_path) == 2
    first = (tmp_path / "flights" / "2013-01.csv").stat().st_mtime_ns
    flights.feed(tmp_path, 3)

    assert flights.months_arrived(tmp_path) == 12
    assert len(waits) == 2 + 10
    assert (tmp_path / "flights" / "2013-01.csv").stat().st_mtime_ns == first
