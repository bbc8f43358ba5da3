"""A live file is deleted from the store while handles are open: each handle that looks, or that follows over the
correction, is told, and what an append takes away with the lost file is written again in the same commit.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.persist.log.test_foreign_commits import Follower, append, in_the_table, opened, read, tidy
from tests.persist.model import batch
from tests.s3_fixtures import Place, Places
from tidemark_persist import Appended, ForeignCommit, NotReadable, PartGone, Shard, StorageError, UpperMismatch
from tidemark_persist.storage.storage import FileStat, Storage


@pytest.fixture
def place(places: Places) -> Place:
    return places.new()


def lose_first(place: Place, shard: Shard) -> str:
    """Deletes the live file with the earliest time."""
    path = shard.snapshot_parts(shard.refresh().upper - 1)[0].path
    (place.folder / path).unlink()
    return path


def correct(shard: Shard, *rows: tuple[object, ...], lost: frozenset[str]) -> Appended | UpperMismatch:
    upper = shard.refresh().upper
    rows_at = batch([(row, upper, 1) for row in rows])
    return shard.compare_and_append(
        rows_at, expected_upper=upper, new_upper=upper + 1, term=1, since=upper, epoch=shard.epoch, lost=lost
    )


def test_a_lost_file_is_told_and_corrected_in_one_commit(place: Place) -> None:
    """Reads fail by name until the commit; after it no time before it can be read, and a handle that had read the file
    before is told."""
    writer = opened(place.location)
    append(writer, ("a", 1))
    append(writer, ("b", 2))
    follower = Follower(opened(place.location))
    follower.follow()
    epoch, name = writer.epoch, writer.contents_id
    assert writer.look_for_lost_files() == frozenset()
    writer.check_epoch(epoch)

    lost = lose_first(place, writer)
    assert writer.look_for_lost_files() == {lost}
    with pytest.raises(ForeignCommit, match=f"file {lost} of the table .* is lost"):
        writer.check_epoch(epoch)
    after = writer.epoch
    assert writer.look_for_lost_files() == {lost}
    writer.check_epoch(after)
    with pytest.raises(PartGone):
        read(writer)
    assert isinstance(correct(writer, ("a", 1), lost=writer.lost_files()), Appended)
    assert read(writer) == {("a", 1): 1, ("b", 2): 1}
    assert writer.look_for_lost_files() == frozenset()
    assert writer.contents_id != name
    with pytest.raises(NotReadable):
        writer.snapshot(writer.state().upper - 2)

    follower.follow()
    assert len(follower.told) == 1
    assert follower.contents() == {("a", 1): 1, ("b", 2): 1}
    append(writer, ("c", 3))
    follower.follow()
    assert len(follower.told) == 1
    fresh = opened(place.location)
    assert read(fresh) == {("a", 1): 1, ("b", 2): 1, ("c", 3): 1}
    assert fresh.contents_id == writer.contents_id == follower.shard.contents_id


def test_handles_that_find_it_by_themselves_count_it_alike(tmp_path: Path) -> None:
    """Otherwise the correction by one of them would be another change for the other one."""
    one, other = opened(tmp_path / "t"), opened(tmp_path / "t")
    append(one, ("a", 1))
    lose_first(Place(str(tmp_path / "t"), tmp_path / "t"), one)
    for shard in (one, other):
        assert shard.look_for_lost_files()
    epoch = other.epoch
    assert isinstance(correct(one, ("a", 1), lost=one.lost_files()), Appended)
    append(other, ("b", 2))
    other.check_epoch(epoch)
    assert read(one) == read(other) == {("a", 1): 1, ("b", 2): 1}


def test_a_compaction_that_had_read_the_file_is_not_written_twice(tmp_path: Path) -> None:
    """The compaction lands first: the rows are in the table again, and the correction appends nothing."""
    location = tmp_path / "t"
    writer, other = opened(location), opened(location)
    for at in range(3):
        append(writer, ("a", at))
    place = Place(str(location), location)
    (saved := tmp_path / "saved").mkdir()
    lost = writer.snapshot_parts(writer.refresh().upper - 1)[0].path
    shutil.copy(location / lost, saved / lost)
    assert lose_first(place, writer) == lost
    assert writer.look_for_lost_files() == {lost}
    paths = writer.lost_files()
    shutil.copy(saved / lost, location / lost)
    other.refresh()
    tidy(other)
    assert isinstance(correct(writer, ("a", 0), lost=paths), UpperMismatch)
    assert read(writer) == in_the_table(location) == {("a", at): 1 for at in range(3)}


def test_a_look_asks_for_some_files_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them within as many looks as that takes."""
    shard = opened(tmp_path / "t")
    for at in range(7):
        append(shard, ("a", at))
    asked, stat = list[str](), Storage.stat

    def counted(storage: Storage, path: str) -> FileStat | None:
        asked.append(path)
        return stat(storage, path)

    monkeypatch.setattr(Storage, "stat", counted)
    for looks in range(1, 4):
        shard.look_for_lost_files(3)
        assert len(asked) == 3 * looks
    live = {part.path for part in shard.snapshot_parts(shard.refresh().upper - 1)}
    assert set(asked) == live


def test_a_store_that_fails_has_lost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = opened(tmp_path / "t")
    append(shard, ("a", 1))
    epoch = shard.epoch

    def fails(storage: Storage, path: str) -> FileStat | None:
        raise StorageError("it does not answer")

    monkeypatch.setattr(Storage, "stat", fails)
    with pytest.raises(StorageError):
        shard.look_for_lost_files()
    shard.check_epoch(epoch)
