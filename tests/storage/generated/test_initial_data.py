"""Initial data of the load generator are made once for all replicas of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark_replica.storage.tpch.initial import SHARED_FOLDER, InitialData, data_folder


def test_a_replica_that_takes_over_uses_the_data_that_another_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local replicas share a folder. Files that one left unfinished when it died go in time; those that are being made
    stay."""
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path / "shared"))
    folder = data_folder(tmp_path / "scratch of r1")
    assert folder == data_folder(tmp_path / "scratch of r2")
    abandoned, under_way = folder / ".tpch-abandoned", folder / ".tpch-under-way"
    for unfinished in (abandoned, under_way):
        unfinished.mkdir(parents=True)
    os.utime(abandoned, (0, 0))
    made = InitialData(folder, "0.001").path("orders")
    before = made.stat()
    assert (abandoned.exists(), under_way.exists()) == (False, True)
    assert InitialData(folder, "0.001").path("orders").stat() == before

    monkeypatch.delenv(SHARED_FOLDER)
    assert data_folder(tmp_path / "scratch of r1") == tmp_path / "scratch of r1" / "sources"
