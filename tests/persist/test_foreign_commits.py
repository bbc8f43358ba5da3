"""Commits of other programs to a shard: readers that follow it never see them, and the next append takes them back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.persist.model import COLUMNS, batch, contents
from tests.s3_fixtures import Place
from tidemark_persist import FilesLost, Shard, create_or_open

A, B = ("a", 1), ("b", 2)


def filled(place: Place) -> Shard:
    """With A from 0 on and B from 1 on, in a file each."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    shard.compare_and_append(batch([(A, 0, 1)]), expected_upper=0, new_upper=1, term=1)
    shard.compare_and_append(batch([(B, 1, 1)]), expected_upper=1, new_upper=2, term=1)
    return shard


def in_table(shard: Shard) -> dict[tuple[object, ...], int]:
    """The rows that any reader of Delta finds."""
    rows = DeltaTable(shard.location).to_pyarrow_table()
    return contents(rows.select([name for name in rows.column_names if name != "__time"]))


def delete_some(location: str) -> None:
    DeltaTable(location).delete("k = 'a'")


def delete_all(location: str) -> None:
    DeltaTable(location).delete()


def insert(location: str) -> None:
    write_deltalake(location, batch([(("c", 3), 0, 1)]), mode="append")


def overwrite(location: str) -> None:
    write_deltalake(location, batch([(("c", 3), 0, 1)]), mode="overwrite")


def update(location: str) -> None:
    DeltaTable(location).update(updates={"v": "7"}, predicate="k = 'b'")


def restore(location: str) -> None:
    DeltaTable(location).restore(1)


@pytest.mark.parametrize("interfere", [delete_some, delete_all, insert, overwrite, update, restore])
def test_what_another_program_commits_is_not_seen_and_taken_back(
    place: Place, interfere: Callable[[str], None]
) -> None:
    writer, reader = filled(place), create_or_open(place.location, COLUMNS, shard_id="s")
    interfere(place.location)
    assert in_table(writer) != {A: 1, B: 1}
    assert contents(reader.snapshot(1)) == contents(writer.snapshot(1)) == {A: 1, B: 1}

    writer.compare_and_append(None, expected_upper=2, new_upper=3, term=1)

    assert in_table(writer) == {A: 1, B: 1}
    fresh = create_or_open(place.location, COLUMNS, shard_id="s")
    assert [contents(handle.snapshot(2)) for handle in (reader, fresh)] == [{A: 1, B: 1}] * 2
    assert len(writer.take_foreign_versions()) == 1
    assert writer.take_foreign_versions() == ()
    version = writer.state().version
    writer.compare_and_append(None, expected_upper=3, new_upper=4, term=1)
    assert writer.state().version == version + 1, "nothing is left to take back"


def test_of_two_writers_one_takes_it_back(place: Place) -> None:
    first, second = filled(place), create_or_open(place.location, COLUMNS, shard_id="s")
    delete_all(place.location)
    first.refresh(), second.refresh()
    first.compare_and_append(None, expected_upper=2, new_upper=3, term=1)
    version = first.state().version
    second.compare_and_append(None, expected_upper=3, new_upper=4, term=1)
    assert second.state().version == version + 1
    assert in_table(second) == {A: 1, B: 1}


def test_other_programs_may_rewrite_files(place: Place) -> None:
    """OPTIMIZE changes no rows, and stays."""
    writer = filled(place)
    DeltaTable(place.location).optimize.compact()
    writer.compare_and_append(None, expected_upper=2, new_upper=3, term=1)
    assert writer.take_foreign_versions() == ()
    assert contents(writer.snapshot(2)) == in_table(writer) == {A: 1, B: 1}
    assert len(DeltaTable(place.location).file_uris()) == 1


def test_files_that_another_program_has_removed_for_good_are_told(place: Place) -> None:
    """DELETE and VACUUM: nothing is appended until they are back."""
    writer = filled(place)
    before = {file: file.read_bytes() for file in place.folder.glob("*.parquet")}
    delete_all(place.location)
    for file in before:
        file.unlink()

    with pytest.raises(FilesLost, match="do not exist any more"):
        writer.compare_and_append(None, expected_upper=2, new_upper=3, term=1, commit_id="x")
    for file, data in before.items():
        file.write_bytes(data)
    writer.compare_and_append(None, expected_upper=2, new_upper=3, term=1, commit_id="x")
    assert in_table(writer) == {A: 1, B: 1}


def test_a_program_that_reads_the_changes_sees_rows_come_back(place: Place) -> None:
    """Unlike a compaction, this is a change of data."""
    writer = filled(place)
    overwrite(place.location)
    writer.compare_and_append(None, expected_upper=2, new_upper=3, term=1)

    text = (place.folder / "_delta_log" / f"{writer.state().version - 1:020}.json").read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    files = [action.get("add") or action["remove"] for action in actions if "add" in action or "remove" in action]
    assert [file["dataChange"] for file in files] == [True] * 3
