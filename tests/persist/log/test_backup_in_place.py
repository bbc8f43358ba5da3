"""A backup is put in a shard's place while handles are open: each ends with what the table then has, whoever went on
from what was before is told, and no handle's work is of the table that is gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.persist.log.test_foreign_commits import (
    Follower,
    append,
    append_d,
    delete,
    in_the_table,
    opened,
    optimize,
    put_back,
    read,
    tidy,
)
from tidemark_persist import ForeignCommit, StorageError
from tidemark_persist.log.delta_log import DeltaLog


@pytest.mark.parametrize("later", [0, 1, 3])
def test_a_backup_in_its_place_is_told_whoever_goes_on_with_it(tmp_path: Path, later: int) -> None:
    """Also where others have made the log as long as before, or longer."""
    writer = opened(tmp_path / "t")
    append(writer, ("a", 1))
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    append(writer, ("b", 2))
    follower = Follower(opened(tmp_path / "t"))
    follower.follow()
    put_back(tmp_path / "t", tmp_path / "backup")
    other = opened(tmp_path / "t")
    for at in range(later):
        append(other, ("c", at))
    follower.follow()
    (told,) = follower.told
    assert "a backup" in str(told)
    assert follower.contents() == in_the_table(tmp_path / "t")


@pytest.mark.parametrize("tip", ["ours", "foreign"])
@pytest.mark.parametrize("then", [append_d, delete, optimize])
def test_a_backup_that_others_brought_to_the_same_version_is_told(
    tmp_path: Path, tip: str, then: Callable[[Path], None]
) -> None:
    """Also where the handle last read another program's commit, and where the next one is another program's."""
    location = tmp_path / "t"
    writer = opened(location)
    append(writer, ("a", 1), ("b", 2))
    shutil.copytree(location, tmp_path / "backup")
    follower = Follower(opened(location))
    if tip == "ours":
        append(writer, ("c", 3))
    else:
        delete(location, ("a", 1))
    follower.follow()
    put_back(location, tmp_path / "backup")
    append(opened(location), ("c", 4))
    assert follower.shard.state().version == DeltaTable(str(location)).version()
    then(location)
    follower.follow()
    assert follower.told
    assert follower.contents() == read(follower.shard) == in_the_table(location)


def test_a_handle_that_was_led_into_a_backup_is_told_by_the_next_commit(tmp_path: Path) -> None:
    """Others brought the backup to the version of two handles that had not noticed. One of them commits, as if after
    what it knew, and so leads the other one there."""
    location = tmp_path / "t"
    writer, follower = opened(location), Follower(opened(location))
    append(writer, ("a", 1))
    shutil.copytree(location, tmp_path / "backup")
    append(writer, ("b", 2))
    follower.follow()
    put_back(location, tmp_path / "backup")
    append(opened(location), ("c", 3))
    writer._log._gap_check_seconds = follower.shard._log._gap_check_seconds = 60.0
    append(writer, ("d", 4))
    follower.follow()
    assert follower.contents() != in_the_table(location), "the follower already has the backup: this test shows nothing"
    append(writer, ("e", 5))
    follower.follow()
    assert len(follower.told) == 1
    assert follower.contents() == in_the_table(location) == {("a", 1): 1, ("c", 3): 1, ("d", 4): 1, ("e", 5): 1}
    append(writer, ("f", 6))
    follower.follow()
    assert len(follower.told) == 1


@pytest.mark.parametrize("later", [0, 1, 2, 5])
def test_a_writer_that_has_not_noticed_a_backup_does_it_no_harm(tmp_path: Path, later: int) -> None:
    """Its checkpoint, compaction and vacuum are of the table that is there, of which an earlier vacuum knows less."""
    location = tmp_path / "t"
    writer = opened(location, retention=0)
    for at in range(2):
        append(writer, ("a", at))
    shutil.copytree(location, tmp_path / "backup")
    append(writer, ("b", 2))
    tidy(writer)  # compacts; marks what the backup needs
    append(writer, ("b", 3))
    marked = (location / "_tidemark" / "vacuum.json").read_bytes()
    assert "parquet" in marked.decode()
    writer._log._gap_check_seconds = 60.0
    put_back(location, tmp_path / "backup")
    (location / "_tidemark").mkdir(exist_ok=True)
    (location / "_tidemark" / "vacuum.json").write_bytes(marked)
    for at in range(later):
        append(opened(location, retention=0), ("c", at))
    before = in_the_table(location)
    for _ in range(3):
        tidy(writer)
        assert in_the_table(location) == before
    assert read(opened(location)) == read(writer) == before


def test_a_commit_is_unknown_until_it_is_known_which_table_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails after the commit landed: the same call again finds it, and the backup that it landed in."""
    location = tmp_path / "t"
    writer = opened(location)
    append(writer, ("a", 1))
    shutil.copytree(location, tmp_path / "backup")
    append(writer, ("b", 2))
    epoch = writer.epoch
    put, read_entry = DeltaLog._put, DeltaLog.read_entry
    fails = [False]

    def puts_in_the_backup(log: DeltaLog, change: Any) -> None:
        monkeypatch.setattr(DeltaLog, "_put", put)
        put_back(location / "_delta_log", tmp_path / "backup" / "_delta_log")
        append(opened(location), ("c", 3))
        put(log, change)
        fails[0] = True

    def fails_once(log: DeltaLog, version: int) -> Any:
        if fails[0]:
            fails[0] = False
            raise StorageError("the store does not answer")
        return read_entry(log, version)

    monkeypatch.setattr(DeltaLog, "_put", puts_in_the_backup)
    monkeypatch.setattr(DeltaLog, "read_entry", fails_once)
    append(writer, ("d", 4))
    with pytest.raises(ForeignCommit):
        writer.check_epoch(epoch)
    assert read(writer) == in_the_table(location) == {("a", 1): 1, ("c", 3): 1, ("d", 4): 1}


def test_each_backup_in_its_place_gives_the_contents_another_name(tmp_path: Path) -> None:
    """Also where the same one is put there again."""
    writer, names = opened(tmp_path / "t"), list[str]()
    append(writer, ("a", 1))
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    for _ in range(3):
        append(writer, ("b", 2))
        put_back(tmp_path / "t", tmp_path / "backup")
        writer.refresh()
        names.append(writer.contents_id)
    assert len(set(names)) == 3
