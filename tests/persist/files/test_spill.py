"""Data beyond the memory limit are spilled to the process's own folder, not to the system's temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.persist.model import COLUMNS, batch
from tidemark_persist import MaintenancePolicy, create_or_open, set_spill_folder
from tidemark_persist.files.spill import divide
from tidemark_persist.maintenance.maintenance import Compact

ROWS = pa.table({"k": list(range(100))})


@pytest.fixture
def spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this process spills; there is no folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    folder = tmp_path / "spilled"
    folder.mkdir()
    set_spill_folder(folder)
    yield folder
    set_spill_folder(None)


def test_shares_wait_below_the_processs_folder_and_are_gone_in_the_end(spilled: Path) -> None:
    shares = divide([ROWS], ROWS.schema, 4)
    rows = sum(table.num_rows for table in next(shares))
    assert len(list(spilled.rglob("*.arrow"))) >= 3
    rows += sum(table.num_rows for share in shares for table in share)

    assert rows == ROWS.num_rows
    assert list(spilled.iterdir()) == []


def test_an_empty_table_is_in_no_share(spilled: Path) -> None:
    shares = [table for share in divide([ROWS.slice(0, 0), ROWS], ROWS.schema, 4) for table in share]

    assert sorted(k for table in shares for k in table.column("k").to_pylist()) == list(range(100))


def test_a_compaction_that_does_not_fit_in_memory_goes_there(tmp_path: Path, spilled: Path) -> None:
    policy = MaintenancePolicy(compact_runs=3, compact_rows_in_memory=2)
    shard = create_or_open(str(tmp_path / "shard"), COLUMNS, shard_id="s", policy=policy)
    for time in range(6):
        rows = batch([((f"row {time}", time), time, 1)])
        shard.compare_and_append(rows, expected_upper=time, new_upper=time + 1, term=1)
    (compact,) = [work for work in shard.maintenance_due() if isinstance(work, Compact)]
    shard.run_maintenance(compact)

    assert shard.snapshot(5).num_rows == 6
    assert not {file.path for file in compact.files} & {part.path for part in shard.snapshot_parts(5)}
    assert list(spilled.iterdir()) == []
