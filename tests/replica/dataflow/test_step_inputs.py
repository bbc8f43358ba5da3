"""The inputs of a step stay readable for as long as the step reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidemark_persist import MaintenancePolicy, Shard, create_or_open, read_part
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata, SourceImport
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.dataflow.step_inputs import StepInputs, release
from tidemark_replica.shards.shards import ShardHandles

NO_WAIT = MaintenancePolicy(compact_runs=4, vacuum_grace_seconds=0.0, orphan_age_seconds=0.0)
T = GlobalId("t")
TICKS = 8


def filled(folder: Path) -> Shard:
    """One row at each of the times 0 to TICKS - 1."""
    shard = create_or_open(str(folder), pa.schema([("n", pa.int64())]), shard_id="t", policy=NO_WAIT)
    for tick in range(TICKS):
        rows = pa.table({"n": [tick], "__time": [tick], "__diff": [1]})
        shard.compare_and_append(rows, expected_upper=tick, new_upper=tick + 1, term=1)
    return shard


def tidied(shard: Shard) -> int:
    """Compacted and vacuumed as far as that goes; how many data files are left."""
    for _ in range(3):
        for work in shard.maintenance_due():
            shard.run_maintenance(work)
    return len(list(Path(shard.location).glob("*.parquet")))


def inputs(folder: Path) -> StepInputs:
    metadata = ShardMetadata(ShardId("t"), str(folder), (Column("n", BIGINT),))
    return StepInputs([SourceImport(T, metadata, (0,))], ShardHandles())


def test_a_hydration_keeps_its_listed_parts_until_its_end(tmp_path: Path) -> None:
    """The shard is compacted and vacuumed while it reads; afterwards nothing is left over."""
    shard, listed = filled(tmp_path / "t"), inputs(tmp_path / "t")
    parts = listed.hydration(3, TICKS)[T]
    assert tidied(shard) > 1

    read = [row for part in parts for batch in read_part(part, columns=["n"]) for row in batch.column(0).to_pylist()]
    assert sorted(read) == list(range(TICKS))
    release(listed.end_step())
    assert tidied(shard) == 1
    assert list((tmp_path / "t" / "_tidemark" / "leases").iterdir()) == []


def test_a_later_step_is_listed_without_a_lease(tmp_path: Path) -> None:
    """Steps are many and short: none writes a file for it."""
    filled(tmp_path / "t")
    listed = inputs(tmp_path / "t")

    assert len(listed.step(5, TICKS)[T]) == 3
    assert listed.end_step() == []
