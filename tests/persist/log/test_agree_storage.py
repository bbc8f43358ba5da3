"""The object store's way to files agrees with the local disk's.

The same delta-rs object store that serves S3 is pointed at a folder, too: real files, no shortcuts of ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.persist.model import COLUMNS, batch, changes, contents
from tests.s3_server import S3Server
from tidemark_persist import (
    Appended,
    MaintenancePolicy,
    ShardNotFound,
    UpperMismatch,
    create_or_open,
    delete_shard,
    open_shard,
    write_staged,
)
from tidemark_persist.storage.storage import Storage

EAGER = MaintenancePolicy(
    checkpoint_commits=2, compact_runs=3, vacuum_grace_seconds=0.0, orphan_age_seconds=0.0, log_retention_seconds=0
)


@pytest.fixture(params=["local disk", "object store", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A folder, by either way; or a prefix of a bucket."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        return Storage.at(server.location(f"{tmp_path.name}/shard"))
    (tmp_path / "shard").mkdir()
    if request.param == "object store":
        monkeypatch.setattr(Storage, "local_path", None)
    return Storage.at(f"file://{tmp_path}/shard", {})


def test_agree_files_are_written_whole_read_listed_and_removed(storage: Storage) -> None:
    """The few things a shard asks of a file system."""
    assert (storage.read("a/b"), storage.stat("a/b"), storage.list("a"), storage.list("")) == (None, None, [], [])
    storage.write_json("a/b.json", {"x": 1})
    storage.write_json("a/b.json", {"x": 2})
    with storage.open_output("c.parquet") as stream:
        stream.write(b"abc")

    assert storage.read_json("a/b.json") == {"x": 2}
    assert [(file.path, file.size) for file in storage.list("a")] == [("a/b.json", 8)]
    assert [(file.path, file.size) for file in storage.list("")] == [("c.parquet", 3)]
    stat = storage.stat("c.parquet")
    assert stat is not None
    assert stat.modified_ms > 1_700_000_000_000
    storage.remove("c.parquet")
    storage.remove("c.parquet")
    assert storage.list("") == []
    with pytest.raises(FileNotFoundError):
        storage.open_input("c.parquet")


def test_agree_life_of_a_shard(storage: Storage) -> None:
    """Created, written, staged, followed, compacted, vacuumed under a lease, read, deleted."""
    location = storage.location
    shard = create_or_open(location, COLUMNS, shard_id="s", policy=EAGER)
    reader = open_shard(location)
    for tick in range(12):
        rows = batch([(("a", tick), tick, 1), (("a", tick - 1), tick, -1)][: tick + 1])
        staged = write_staged(location, rows) if tick % 2 else None
        outcome = shard.compare_and_append(
            rows if staged is None else [staged], expected_upper=tick, new_upper=tick + 1, term=1
        )
        assert isinstance(outcome, Appended)
        assert changes(reader.listen(tick, reader.refresh().upper))[("a", tick), tick] == 1
        shard.downgrade_since(max(0, tick - 2))
        with reader.lease():
            for work in shard.maintenance_due():
                shard.run_maintenance(work)
    assert shard.compare_and_append(None, expected_upper=3, new_upper=4, term=1) == UpperMismatch(12)
    assert contents(open_shard(location).snapshot(11)) == {("a", 11): 1}
    assert contents(reader.snapshot(10)) == {("a", 10): 1}
    delete_shard(location, "s")
    with pytest.raises(ShardNotFound):
        open_shard(location)
