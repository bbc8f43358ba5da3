"""Initial data of the load generator are made once for all replicas of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tidemark_replica.storage.tpch import initial
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


def test_orders_that_follow_each_other_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that deletes a few orders does not decode the two files anew."""
    data, read = InitialData(tmp_path, "0.001"), list[str]()
    whole = [pq.read_table(data.path(table)) for table in ("orders", "lineitem")]
    every = sorted(whole[0].column("o_orderkey").to_pylist())

    def counted(path: Path, **given: object) -> object:
        read.append(Path(path).name)
        return pq.read_table(path, **given)

    monkeypatch.setattr(initial, "pq", type("Counted", (), {"read_table": staticmethod(counted)}))
    monkeypatch.setattr(initial, "ORDERS_AHEAD", 100)
    at = 0
    for count in (0, 1, 30, 69, 1, 250, 20, 0, len(every)):
        keys = set(every[at : at + count])
        for table, found in zip(whole, data.orders_at(range(at, at + count)), strict=True):
            expected = table.filter([key in keys for key in table.column(0).to_pylist()])
            assert found.equals(expected)
        at += count
    again = data.orders_at(range(5, 7))[0].column(0).to_pylist()
    assert sorted(again) == every[5:7]
    assert len(read) < 20
