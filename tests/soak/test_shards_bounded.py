"""Shards under many ticks: files, log and memory of handles follow the live data.

One handle writes and tidies up, one only lowers the since (as a replica does for the controller), one only reads.
"""

from __future__ import annotations

from pathlib import Path

from tests.persist.model import COLUMNS, batch, contents
from tidemark_persist import MaintenancePolicy, Shard, create_or_open, open_shard
from tidemark_persist.log.entry import DataFile, LogEntry
from tidemark_persist.log.state import REMOVED_SECONDS, ShardState, TableState
from tidemark_persist.times import Term, Time

TICKS = 150
READABLE = 10
EAGER = MaintenancePolicy(
    checkpoint_commits=8, compact_runs=4, vacuum_grace_seconds=0.0, orphan_age_seconds=0.0, log_retention_seconds=0
)


def tick(shard: Shard, time: int) -> None:
    """A counter: its row of the last tick goes, that of this one comes."""
    gone = [(("n", time - 1), time, -1)] if time else []
    shard.compare_and_append(batch([(("n", time), time, 1), *gone]), expected_upper=time, new_upper=time + 1, term=1)
    for work in shard.maintenance_due():
        shard.run_maintenance(work)


def test_a_shard_ticked_for_long_keeps_few_files_and_little_log(tmp_path: Path) -> None:
    """At every tick; and every handle reads the same at the end."""
    folder = tmp_path / "shard"
    writer, lowerer = (create_or_open(str(folder), COLUMNS, shard_id="s", policy=EAGER) for _ in range(2))
    reader = open_shard(str(folder))
    for time in range(TICKS):
        tick(writer, time)
        lowerer.downgrade_since(max(time - READABLE, 0))
        assert reader.refresh() == lowerer.state()

        assert len(list(folder.glob("*.parquet"))) <= 4 * EAGER.compact_runs
        assert len(list((folder / "_delta_log").iterdir())) <= 5 * EAGER.checkpoint_commits
    assert contents(reader.snapshot(TICKS - 1)) == {("n", TICKS - 1): 1}
    assert sum(part.rows for part in reader.snapshot_parts(TICKS - 1)) <= 8 * READABLE


def test_a_handle_forgets_files_that_were_removed_long_ago() -> None:
    """A week of ticks of a second, seen by a handle that never vacuums: it remembers the last hour's."""
    state = TableState(ShardState(Time(0), Time(0), Term(0), 0), [])
    week = 7 * 24 * 3600
    for second in range(1, week, 60):
        removed = () if second == 1 else (f"{second - 60}.parquet",)
        added = DataFile(f"{second}.parquet", 1, 1, Time(second), Time(second))
        state.apply(LogEntry(state.frontiers.version + 1, adds=(added,), removed_paths=removed), float(second))

    assert state.file_count() == 1
    assert len(state.removed_paths()) == REMOVED_SECONDS // 60 + 1
