"""Snapshots, listings and parts: readable times, refusals, and the size of parts on their way to other processes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.persist.model import COLUMNS, batch, changes, contents
from tests.s3_fixtures import Place, Places
from tidemark_persist import (
    DIFF,
    EMPTY,
    ERROR,
    TIME,
    FilePart,
    InvalidTime,
    NotReadable,
    PartGone,
    Shard,
    ShardMismatch,
    ShardWriters,
    Time,
    create_or_open,
    open_shard,
    read_part,
    write_staged,
)
from tidemark_persist.log import delta_log
from tidemark_persist.log.entry import LogEntry
from tidemark_persist.storage.storage import Storage

HISTORY = [
    #  row                     time diff
    (("a", 1), 2, 1),
    (("b", 1), 3, 2),
    (("a", 1), 5, -1),
    (("a", 2), 5, 1),
    ((None, None, "boom"), 6, 1),
    ((None, None, "boom"), 8, -1),
    ((None, None), 8, 1),
]


@pytest.fixture
def shard(place: Place) -> Shard:
    """HISTORY, in appends of two ticks each."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    for lower in range(0, 10, 2):
        rows = batch([update for update in HISTORY if lower <= update[1] < lower + 2])
        shard.compare_and_append(rows, expected_upper=lower, new_upper=lower + 2, term=1)
    return shard


SNAPSHOTS = {
    1: {},
    2: {("a", 1): 1},
    4: {("a", 1): 1, ("b", 1): 2},
    5: {("a", 2): 1, ("b", 1): 2},
    7: {("a", 2): 1, ("b", 1): 2, (None, None, "boom"): 1},
    9: {("a", 2): 1, ("b", 1): 2, (None, None): 1},
}


@pytest.mark.parametrize("as_of", SNAPSHOTS)
def test_snapshot_is_the_consolidated_contents(shard: Shard, as_of: int) -> None:
    """A row of NULLs is not an error, and an error is not a row of NULLs."""
    snapshot = shard.snapshot(as_of)

    assert contents(snapshot) == SNAPSHOTS[as_of]
    assert snapshot.column_names == ["k", "v", DIFF, ERROR]


def test_listen_holds_the_updates_between_two_times_however_they_were_appended(shard: Shard) -> None:
    """Bounds inside an append cut through its file."""
    assert changes(shard.listen(3, 6)) == {
        (("b", 1), 3): 2,
        (("a", 1), 5): -1,
        (("a", 2), 5): 1,
    }
    assert shard.listen(6, 6) == []
    assert len(shard.listen(8, 10)) == 1  # one file, not all of them


def test_a_listing_of_known_parts_reads_no_file(shard: Shard) -> None:
    """The same as with a look, where the handle has seen so far; otherwise it says that it does not know."""
    other = open_shard(shard.location)
    assert other.listen_cached(2, 6) == other.listen(2, 6)
    shard.compare_and_append(None, expected_upper=10, new_upper=12, term=1)
    assert other.listen_cached(10, 12) is None
    other.refresh()
    assert other.listen_cached(10, 12) == []
    shard.downgrade_since(8)
    assert shard.listen_cached(3, 6) is None


def test_reader_behind_the_since_or_at_the_upper_is_refused(shard: Shard) -> None:
    """With both frontiers in the error, to choose another time from."""
    shard.downgrade_since(4)

    for as_of in (3, 10):
        with pytest.raises(NotReadable, match="its since is 4, its upper 10"):
            shard.snapshot(as_of)
    for lower, upper in ((4, 6), (5, 11)):
        with pytest.raises(NotReadable):
            shard.listen(lower, upper)
    assert changes(shard.listen(5, 6))
    assert contents(shard.snapshot(4)) == SNAPSHOTS[4]


def test_since_goes_forward_only_and_leaves_a_time_to_read(shard: Shard) -> None:
    """Older times change nothing; the upper cannot be reached; the empty frontier is the end."""
    assert shard.downgrade_since(4) == 4
    assert shard.downgrade_since(2) == 4
    with pytest.raises(InvalidTime, match="no time to read"):
        shard.downgrade_since(10)
    assert shard.downgrade_since(EMPTY) == EMPTY
    with pytest.raises(NotReadable, match="its since is empty"):
        shard.snapshot(9)


def test_unwritten_shard_may_start_at_any_since(place: Place) -> None:
    """A view is valid from its as_of on, before its first append."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    shard.downgrade_since(100)
    shard.compare_and_append(batch([(("a", 1), 100, 1)]), expected_upper=0, new_upper=101, term=1)

    assert contents(shard.snapshot(100)) == {("a", 1): 1}
    with pytest.raises(NotReadable):
        shard.snapshot(99)


def test_parts_travel_as_json_and_as_pickles_and_are_read_by_location_alone(shard: Shard) -> None:
    """A worker process gets such texts."""
    parts = shard.snapshot_parts(5)

    assert [FilePart.from_json(part.to_json()) for part in parts] == parts
    assert pickle.loads(pickle.dumps(parts)) == parts
    assert changes(parts) == {
        (("a", 1), 2): 1,
        (("b", 1), 3): 2,
        (("a", 1), 5): -1,
        (("a", 2), 5): 1,
    }


def test_part_reads_only_the_columns_asked_for_in_that_order(shard: Shard) -> None:
    """Also without the time, which it filters by all the same."""
    [part] = shard.listen(5, 6)

    [rows] = read_part(part, columns=["v", DIFF])
    assert rows.to_pylist() == [{"v": 1, DIFF: -1}, {"v": 2, DIFF: 1}]


def test_part_comes_in_small_batches_and_skips_row_groups_by_time(place: Place) -> None:
    """Memory is bounded by the batch, and work by the times asked for."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    count = 300_000
    rows = pa.table(
        {"k": pa.repeat("x", count), "v": range(count), TIME: range(count), DIFF: pa.repeat(1, count)},
        schema=pa.schema([*COLUMNS, (TIME, pa.int64()), (DIFF, pa.int64())]),
    )
    shard.compare_and_append(rows, expected_upper=0, new_upper=count, term=1)

    [part] = shard.listen(250_000, 250_010)
    assert [piece.column("v").to_pylist() for piece in read_part(part)] == [list(range(250_000, 250_010))]
    [whole] = shard.snapshot_parts(count - 1)
    assert (part.rows, whole.rows) == (10, count)
    sizes = [piece.num_rows for piece in read_part(whole, batch_rows=10_000)]
    assert sum(sizes) == count
    assert max(sizes) <= 10_000


def test_part_of_a_large_file_is_never_held_as_a_whole(tmp_path: Path) -> None:
    """The bytes that Arrow has fetched go, a stretch at a time; the values do not compress, so it is most of it."""
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 2_000_000)
    same = {name: np.full(len(numbers), value) for name, value in ((TIME, 0), (DIFF, 1))}
    file = write_staged(str(tmp_path), pa.table({"v": numbers, **same}))
    assert file is not None
    part = FilePart(str(tmp_path), file.path, Time(0), Time(1), file.rows, file.size)

    before, held, read = pa.total_allocated_bytes(), 0, 0
    for piece in read_part(part, columns=["v"], read_bytes=3 << 20):
        held = max(held, pa.total_allocated_bytes() - before)
        assert (piece.column("v").to_numpy() == numbers[read : read + piece.num_rows]).all()
        read += piece.num_rows
    assert read == len(numbers)
    assert held < file.size / 2


class Going(io.BytesIO):
    """A file that is gone after the first look at it, as one in an object store can be."""

    looks = 0

    def read(self, size: int | None = -1) -> bytes:
        self.looks += 1
        if self.looks > 1:
            raise FileNotFoundError("NoSuchKey")
        return super().read(size)


def test_a_part_that_loses_its_file_while_it_is_read_names_the_remedy(
    shard: Shard, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum of another process took it, between two requests."""
    [part] = shard.listen(5, 6)
    data = (place.folder / part.path).read_bytes()
    monkeypatch.setattr(Storage, "open_input", lambda *_: pa.PythonFile(Going(data), "r"))

    with pytest.raises(PartGone, match="take a new listing"):
        list(read_part(part))


def test_a_part_without_its_file_names_the_remedy(shard: Shard, place: Place) -> None:
    """Not a bare FileNotFoundError from somewhere inside."""
    [part] = shard.listen(5, 6)
    (place.folder / part.path).unlink()

    with pytest.raises(PartGone, match="take a new listing"):
        list(read_part(part))


def test_a_follower_sees_the_appends_of_another_handle_without_reopening(shard: Shard) -> None:
    """`refresh` reads the new entries of the log; `state` alone looks at nothing."""
    follower = open_shard(shard.location)
    shard.compare_and_append(batch([(("c", 1), 10, 1)]), expected_upper=10, new_upper=12, term=1)

    assert follower.state().upper == 10
    assert follower.refresh() == shard.state()
    assert changes(follower.listen(10, 12)) == {(("c", 1), 10): 1}


def test_follower_far_behind_begins_with_the_checkpoint_instead_of_reading_every_entry(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle lists what a new one lists; a few entries it follows one by one."""
    few = 32
    monkeypatch.setattr(delta_log, "FAR_BEHIND", few)
    behind, read = open_shard(shard.location), list[int]()
    _tick_and_maintain(shard, 2 * few)
    monkeypatch.setattr(behind._log, "read_entry", _counting(behind._log.read_entry, read))
    followed = behind.refresh()

    assert followed == open_shard(shard.location).state()
    assert changes(behind.listen(5, followed.upper)) == changes(shard.listen(5, followed.upper))
    assert len(read) < few
    shard.compare_and_append(None, expected_upper=followed.upper, new_upper=followed.upper + 1, term=1)
    assert behind.refresh().version == followed.version + 1


def test_writer_far_behind_commits_after_it_has_begun_with_the_checkpoint(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is opened for the commit, and on a disk not for the reading."""
    few = 32
    monkeypatch.setattr(delta_log, "FAR_BEHIND", few)
    behind, opened = create_or_open(shard.location, COLUMNS, shard_id=shard.shard_id), list[str]()
    _tick_and_maintain(shard, 2 * few)
    open_table = delta_log.open_table
    monkeypatch.setattr(delta_log, "open_table", lambda s: (opened.append(s.location), open_table(s))[1])
    followed = behind.refresh()

    assert len(opened) == (0 if "://" not in shard.location else 1), "an object store needs fewer requests to open it"
    assert (followed, behind.size()) == (shard.refresh(), shard.size())
    behind.compare_and_append(None, expected_upper=followed.upper, new_upper=followed.upper + 1, term=1)
    assert len(opened) == 1
    assert shard.refresh() == behind.state()


def _tick_and_maintain(shard: Shard, ticks: int) -> None:
    for _ in range(ticks):
        now = shard.refresh().upper
        shard.compare_and_append(batch([(("n", now), now, 1)]), expected_upper=now, new_upper=now + 1, term=1)
        for work in shard.maintenance_due():
            shard.run_maintenance(work)


def _counting(read_entry: Callable[[int], LogEntry | None], read: list[int]) -> Callable[[int], LogEntry | None]:
    def counting(version: int) -> LogEntry | None:
        read.append(version)
        return read_entry(version)

    return counting


def test_shard_writers_have_one_handle_for_each_location(places: Places) -> None:
    """One log is followed once per process, until the shard is forgotten."""
    shards, location = ShardWriters(), places.new().location

    writer = shards.open(location, COLUMNS, shard_id="s")
    assert shards.open(f"{location}/", COLUMNS, shard_id="s") is writer
    with pytest.raises(ShardMismatch):
        shards.open(location, COLUMNS, shard_id="other")
    assert shards.open(location, COLUMNS, shard_id="s") is writer
    shards.forget(location)
    assert shards.open(location, COLUMNS, shard_id="s") is not writer
