"""The rows of a shard for a difference are kept from vacuum while they are read, and not much longer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.persist.maintenance.test_vacuum import Clock
from tidemark_persist import DIFF, ShardWriters, open_shard
from tidemark_persist.maintenance import lease
from tidemark_persist.maintenance.lease import LEASE_SECONDS, oldest_leased
from tidemark_persist.storage.storage import Storage
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.storage import withdrawal
from tidemark_replica.storage.withdrawal import Withdrawal

FILES = 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


def shard_at(root: Path) -> str:
    """A shard of FILES files."""
    location = str(root / "t")
    shard = ShardWriters().open(location, pa.schema([("id", pa.int64())]), shard_id="t")
    for n in range(FILES):
        rows = pa.table({"id": [n], "__time": [n], "__diff": [1]})
        shard.compare_and_append(rows, expected_upper=n, new_upper=n + 1, term=1)
    return location


def test_the_lease_of_a_process_that_dies_ends_soon(tmp_path: Path, clock: Clock) -> None:
    location = shard_at(tmp_path)
    storage = Storage.at(location)
    updates = Withdrawal(open_shard(location), [Column("id", BIGINT)]).updates()
    next(updates)
    assert oldest_leased(storage) is not None
    clock.now += withdrawal.LEASE_SECONDS + 1  # `updates` is suspended: the process is gone
    assert withdrawal.LEASE_SECONDS <= LEASE_SECONDS / 6
    assert oldest_leased(storage) is None
    updates.close()


def test_a_slow_reader_keeps_its_lease(tmp_path: Path, clock: Clock) -> None:
    """The reader takes longer than a lease, and no batch does."""
    location = shard_at(tmp_path)
    storage, found = Storage.at(location), list[int]()
    for batch in Withdrawal(open_shard(location), [Column("id", BIGINT)]).updates():
        assert batch.column(DIFF).to_pylist() == [-1]
        found += batch.column("id").to_pylist()
        assert oldest_leased(storage) is not None
        clock.now += withdrawal.LEASE_SECONDS * 0.8
    assert sorted(found) == list(range(FILES))
    assert oldest_leased(storage) is None
    assert not list((tmp_path / "t" / "_tidemark" / "leases").glob("*.json"))
