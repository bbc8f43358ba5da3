"""Published tables at locations that a manifest chose: what others have there stays, and every table is found again."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.published.test_publication import View, contents
from tests.published.test_readers import SCHEMA, append
from tests.s3_fixtures import Place
from tidemark_persist import Shard, Storage, StorageError, create_or_open, delete_shard
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import DeleteShard
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView, location_hash, removal_id, removal_of
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.command_loop import storage_state
from tidemark_replica.shards.published_notes import Note, remove_note
from tidemark_replica.shards.shard_listing import list_shards
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.published import table_destination
from tidemark_replica.sinks.published.hash_prefix import new_file_name
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import PublishedByAnother, PublishedTable, open_table
from tidemark_replica.sinks.published.table_destination import TableDestination
from tidemark_replica.sinks.published.table_removal import remove_published
from tidemark_replica.storage.source_secrets import SourceSecrets

OWNER = "shop.flow.view"


def view_of(root: str, uid: str = "u") -> Shard:
    """The shard of the view of the Dataflow `uid`, with three rows."""
    shard = create_or_open(f"{root}/shop/flow/view/v1", SCHEMA, shard_id=f"{uid}1")
    append(shard, [(k, f"name {k}", 1) for k in range(3)])
    return shard


def destination(root: str, location: str, owner: str = OWNER, uid: str = "u") -> TableDestination:
    columns = Column("k", BIGINT), Column("name", STRING)
    metadata = ShardMetadata(ShardId(f"{uid}1"), f"{root}/shop/flow/view/v1", columns)
    view = PublishedView(location, owner, 1000, 24, chosen=True)
    return TableDestination(GlobalId(f"{uid}/view/1"), metadata, view, ShardHandles(), SourceSecrets(None))


def listed(root: str, elsewhere: bool = True) -> dict[str, str]:
    """The published tables that a replica lists at other locations, with their ids."""
    answer = list_shards(pb.ListShardsRequest(location=f"{root}/shop", published=True, elsewhere=elsewhere))
    assert not answer.error
    return {shard.table: shard.owner for shard in answer.shards if shard.table}


def test_an_edit_begins_another_table_and_both_are_listed(place: Place) -> None:
    """By ids of their own, under which each is deleted by itself. An older operator is sent none of them."""
    root, places = f"{place.location}/data", [f"{place.location}/lake/{name}" for name in ("one", "two")]
    shard = view_of(root)
    for at in places:
        destination(root, at).publish(Time(0), WriterTerm(1))
    append(shard, [(7, "name 7", 1)])
    destination(root, places[1]).publish(Time(1), WriterTerm(1))
    assert [DeltaTable(at).to_pyarrow_table().num_rows for at in places] == [3, 4]
    found = listed(root)
    assert set(found) == set(places)
    assert listed(root, elsewhere=False) == {}
    first, second = (removal_of(ShardId(found[at])) for at in places)
    assert first == second == ("", OWNER)
    assert found[places[0]] != found[places[1]]
    remove_published(places[0], OWNER)
    assert set(listed(root)) == {places[1]}
    assert [path for path in place.left() if "/one/" in str(path)] == []


def test_a_publisher_that_dies_leaves_no_table_that_nobody_finds(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note comes first; alone it means nothing. The next publisher, of any process, goes on."""

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    root, at = f"{place.location}/data", f"{place.location}/lake/spent"
    view_of(root)
    with monkeypatch.context() as patch:
        patch.setattr(table_destination, "write_note", killed)
        with pytest.raises(Killed):
            destination(root, at).publish(Time(0), WriterTerm(1))
    assert Storage.at(at).list("") == []
    with monkeypatch.context() as patch:
        patch.setattr("tidemark_replica.sinks.published.publication.create_table", killed)
        with pytest.raises(Killed):
            destination(root, at).publish(Time(0), WriterTerm(1))
    assert listed(root) == {}
    destination(root, at).publish(Time(0), WriterTerm(1))
    assert set(listed(root)) == {at}
    assert DeltaTable(at).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize("holds", ["a table", "another view's", "a file", "a nested file", "a torn log"])
def test_what_is_not_the_views_stays(place: Place, holds: str) -> None:
    """Nothing is written beside it, and the error names it."""
    root, at = f"{place.location}/data", f"{place.location}/lake/spent"
    view_of(root)
    if holds == "a table":
        write_deltalake(at, pa.table({"a": [1]}), storage_options=Storage.at(at).settings)
    elif holds == "another view's":
        destination(root, at, "shop.other.view").publish(Time(0), WriterTerm(1))
    else:
        names = {"a file": "notes.txt", "a nested file": "day=1/part.parquet", "a torn log": "_delta_log/00.json.old"}
        if (folder := Storage.at(at).local_path) is not None:
            (folder / names[holds]).parent.mkdir(parents=True)
        Storage.at(at).write(names[holds], b"mine")
    before = Counter(str(path) for path in place.left() if "/lake/" in str(path))
    with pytest.raises(PublishedByAnother, match="another location"):
        destination(root, at).publish(Time(0), WriterTerm(1))
    assert Counter(str(path) for path in place.left() if "/lake/" in str(path)) == before
    assert at not in listed(root) or holds == "another view's"


def test_files_of_publishers_that_died_are_no_obstacle(tmp_path: Path) -> None:
    view = View(tmp_path, 1)
    time = view.step(10)
    folder = tmp_path / "published"
    (folder / "_delta_log").mkdir(parents=True)
    (folder / new_file_name("01")).write_bytes(b"half")
    (folder / "_delta_log" / "_commit_0f3c.json.tmp").write_bytes(b"half")
    publication = view.publication(tmp_path)
    TablePublication(publication.shard, replace(publication.options), 1 << 20).publish(Time(time))
    assert contents(tmp_path) == view.at[time]


def test_a_table_below_another_one_outlives_its_clean_up_and_its_deletion(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a shard, as where an instance's storage comes to lie around or below it later."""
    root, outer = f"{place.location}/data", f"{place.location}/lake/outer"
    inner, nested = f"{outer}/inner", f"{place.location}/lake/outer/ns/flow/view/v1"
    view_of(root)
    for at, owner in ((outer, OWNER), (inner, "shop.other.view")):
        destination(root, at, owner).publish(Time(0), WriterTerm(1))
    create_or_open(nested, SCHEMA, shard_id="u2")
    options = replace(destination(root, outer)._options(WriterTerm(0)), retention_hours=0)
    table = open_table(options)
    assert table is not None
    assert table.remove_unused() == 0
    with pytest.raises(StorageError, match=r"another table lies below it, in (inner|ns/flow/view/v1)"):
        remove_published(outer, OWNER)
    assert DeltaTable(inner).to_pyarrow_table().num_rows == 3
    assert create_or_open(nested, SCHEMA, shard_id="u2").state().upper == 0

    remove_published(inner, "shop.other.view")
    delete_shard(nested, ShardId("u2"))
    remove_published(outer, OWNER)
    assert [path for path in place.left() if "/lake/" in str(path)] == []


def test_the_deletion_of_a_table_that_was_never_made_leaves_files_of_a_publication_that_runs(tmp_path: Path) -> None:
    """At a location that a manifest chose another view may be published by now."""
    file = tmp_path / "lake" / new_file_name("01")
    file.parent.mkdir()
    file.write_bytes(b"half")
    remove_published(str(file.parent), OWNER, shared=True)
    assert file.exists()


def test_a_dataflow_that_another_one_of_its_name_took_over_from_publishes_no_more(place: Place) -> None:
    """Two clusters share a manifest and a lake: the later one goes on alone, until an edit of the other one
    makes a revision, which takes the table back."""
    roots, at = {uid: f"{place.location}/{uid}" for uid in ("one", "two", "three")}, f"{place.location}/lake/spent"
    for uid, root in roots.items():
        append(view_of(root, uid), [(7, uid, 1)] * len(uid))

    def publish(uid: str, term: int = 1) -> list[str]:
        destination(roots[uid], at, uid=uid).publish(Time(1), WriterTerm(term))
        return sorted({str(row["name"]) for row in DeltaTable(at).to_pyarrow_table().to_pylist()} & set(roots))

    assert publish("one", 5) == ["one"]
    assert publish("two") == ["two"]
    for _ in range(2):
        with pytest.raises(PublishedByAnother, match=r"such as one of another cluster, has taken .* over"):
            publish("one", 5)
        assert publish("two") == ["two"]
    assert publish("one", 6) == ["one"]
    with pytest.raises(PublishedByAnother, match="its next revision takes the table back"):
        publish("two")
    assert publish("two", 2) == ["two"]
    remove_published(at, OWNER, "one")
    assert publish("two", 2) == ["two"]
    assert publish("three") == ["three"], "a later Dataflow of the name takes over"
    with pytest.raises(PublishedByAnother, match="give one of both views another location"):
        publish("two", 2)
    remove_published(at, OWNER, "three")
    assert publish("two", 2) == ["two"], "the table was deleted, so it is made anew"


@pytest.mark.parametrize("link", ["the folder", "above it", "in it", "to itself"])
def test_no_link_leads_a_table_elsewhere(tmp_path: Path, link: str) -> None:
    """A program that can write near the location would choose where the table lies, and what its clean-up deletes."""
    root, lake, theirs = f"{tmp_path}/data", tmp_path / "lake", tmp_path / "theirs"
    view_of(root)
    (theirs / "spent").mkdir(parents=True)
    at = lake / "spent"
    if link == "above it":
        lake.symlink_to(theirs)
    elif link == "the folder":
        lake.mkdir()
        at.symlink_to(theirs)
    else:
        at.mkdir(parents=True)
        for name in ("a", "b"):
            (at / name).symlink_to(theirs if link == "in it" else ".")
    with pytest.raises(PublishedByAnother, match=r"another location|a location without links"):
        destination(root, str(at)).publish(Time(0), WriterTerm(1))
    assert [path for path in tmp_path.rglob("*.parquet") if "data" not in path.parts] == []
    assert list(theirs.iterdir()) == [theirs / "spent"]


def test_a_damaged_note_is_listed_and_the_others_are_too(place: Place) -> None:
    root, places = f"{place.location}/data", [f"{place.location}/lake/{name}" for name in ("one", "two")]
    view_of(root)
    for at in places:
        destination(root, at).publish(Time(0), WriterTerm(1))
    for damage in (b"{}", b"[]", b'{"location": 7, "owner": "shop.flow.view"}', b'{"location": "/la', b"\xff\x00"):
        Storage.at(f"{root}/shop/_elsewhere/flow/{location_hash(places[0])}").write("table.json", damage)
        answer = list_shards(pb.ListShardsRequest(location=f"{root}/shop", published=True, elsewhere=True))
        assert not answer.error
        notes = [shard for shard in answer.shards if "/_elsewhere/" in shard.location]
        assert [(shard.table, "delete the file" in shard.error) for shard in notes if shard.error] == [("", True)]
        assert [shard.table for shard in notes if not shard.error] == places[1:]


def test_the_note_goes_with_its_table(place: Place) -> None:
    """Not with a deletion that leaves the table, as a later Dataflow of the name has it; a note that a late deletion
    took is written again after the next clean-up."""
    root, at = f"{place.location}/data", f"{place.location}/lake/spent"
    view_of(root, "later")

    def delete(uid: str) -> None:
        command = DeleteShard(removal_id(uid, OWNER, at), at)
        storage_state._delete_table(command, time.monotonic(), lambda: root, SourceSecrets(None))

    def notes() -> list[Path]:
        return [path for path in place.left() if path.name == "table.json"]

    later = destination(root, at, uid="later")
    later.publish(Time(0), WriterTerm(1))
    delete("u")
    assert len(notes()) == 1
    notes()[0].unlink()
    later.clean()
    later.publish(Time(0), WriterTerm(1))
    assert len(notes()) == 1
    delete("later")
    assert notes() == []
    assert [path for path in place.left() if "/lake/" in str(path)] == []
    delete("later")


def test_a_note_is_written_again_also_where_a_clean_up_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store allows no deletion, say."""
    root, at = f"{tmp_path}/data", f"{tmp_path}/lake/spent"
    view_of(root)
    publisher = destination(root, at)
    publisher.publish(Time(0), WriterTerm(1))

    def refused(table: object) -> None:
        raise StorageError("no right to delete")

    monkeypatch.setattr(PublishedTable, "remove_unused", refused)
    remove_note(root, Note(at, OWNER))
    assert listed(root) == {}
    with pytest.raises(StorageError, match="no right"):
        publisher.clean()
    publisher.publish(Time(0), WriterTerm(1))
    assert set(listed(root)) == {at}


@pytest.mark.parametrize("damage", [b"{}", b'{"location": "/la', b"\xff\x00"])
def test_a_damaged_note_goes_with_its_table(place: Place, damage: bytes) -> None:
    """Else the deletion would fail after the table is gone, again and again. It may be repeated."""
    root, at = f"{place.location}/data", f"{place.location}/lake/spent"
    view_of(root)
    destination(root, at).publish(Time(0), WriterTerm(1))
    Storage.at(f"{root}/shop/_elsewhere/flow/{location_hash(at)}").write("table.json", damage)
    for _ in range(2):
        storage_state._delete_table(
            DeleteShard(removal_id("u", OWNER, at), at), time.monotonic(), lambda: root, SourceSecrets(None)
        )
        assert [path for path in place.left() if "/lake/" in str(path) or path.name == "table.json"] == []


def test_a_late_deletion_leaves_the_note_of_another_view(tmp_path: Path) -> None:
    root, at = f"{tmp_path}/data", f"{tmp_path}/lake/spent"
    view_of(root)
    destination(root, at).publish(Time(0), WriterTerm(1))
    remove_published(at, OWNER)
    destination(root, at, owner=f"{OWNER}2").publish(Time(0), WriterTerm(2))
    storage_state._delete_table(
        DeleteShard(removal_id("u", OWNER, at), at), time.monotonic(), lambda: root, SourceSecrets(None)
    )
    assert set(listed(root)) == {at}
