"""The shards below a location are listed in pages, with owner, upper and size; what is no shard is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.s3_fixtures import Place
from tidemark_persist import Shard, create_or_open, delete_shard
from tidemark_protocol.ids import Time
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_replica.shards import shard_listing
from tidemark_replica.shards.shard_listing import list_shards
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import TableOptions
from tidemark_replica.sinks.published.table_removal import remove_published

SCHEMA = pa.schema([("a", pa.int64())])
NAMES = ("a/t/v1", "a/t/v10", "a/t/v2", "a-b/__remap/v1", "b/u/v1", "b/v/v1")


def shard(place: Place, name: str) -> Shard:
    return create_or_open(f"{place.location}/{name}", SCHEMA, shard_id=f"uid/{name}")


def pages(location: str, without: tuple[str, ...] = (), published: bool = False) -> Iterator[list[pb.ListedShard]]:
    after = ""
    while True:
        asked = pb.ListShardsRequest(location=location, after=after, without=without, published=published)
        answer = list_shards(asked)
        assert answer.error == ""
        yield list(answer.shards)
        if not (after := answer.next):
            return


@pytest.fixture
def shards(place: Place) -> Place:
    """A location with shards of several names, parts and versions."""
    for name in NAMES:
        shard(place, name)
    return place


@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_every_shard_is_on_one_page(shards: Place, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(shard_listing, "PAGE_SHARDS", most)

    found = list(pages(shards.location))

    assert sorted(s.location for page in found for s in page) == sorted(f"{shards.location}/{n}" for n in NAMES)
    assert all(len(page) <= most for page in found)
    assert {s.owner for page in found for s in page} == {f"uid/{n}" for n in NAMES}


def test_a_page_that_takes_long_ends_after_a_name(shards: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page goes on: also where all that it found is left out."""
    monkeypatch.setattr(shard_listing, "PAGE_SECONDS", 0.0)
    without = tuple(f"{shards.location}/{name}" for name in NAMES if not name.startswith("b/"))

    found = list(pages(shards.location, without))

    assert [[s.owner for s in page] for page in found] == [[], [], ["uid/b/u/v1", "uid/b/v/v1"]]


def test_upper_and_size_are_of_the_newest_version(shards: Place) -> None:
    written = shard(shards, "b/u/v1")
    updates = pa.table({"a": [1], "__time": [3], "__diff": [1]})
    written.compare_and_append(updates, expected_upper=0, new_upper=7, term=1)

    (page,) = pages(f"{shards.location}")

    (found,) = (s for s in page if s.owner == "uid/b/u/v1")
    assert found.upper == 7
    assert found.bytes > 100
    assert {s.bytes for s in page if s is not found} == {0}


def test_a_shard_that_cannot_be_read_says_so_and_hides_no_other(shards: Place) -> None:
    """Also one that is deleted is no shard."""
    deleted = shard(shards, "b/v/v1")
    delete_shard(deleted.location, deleted.shard_id)
    if "://" not in shards.location:
        with open(f"{shards.location}/b/u/v1/_delta_log/{0:020}.json", "w") as log:
            log.write("no log")

    (page,) = pages(shards.location)

    found = {s.location.removeprefix(f"{shards.location}/"): s.error for s in page}
    assert sorted(found) == sorted(set(NAMES) - {"b/v/v1"})
    if "://" not in shards.location:
        assert found["b/u/v1"] != ""


def test_a_storage_below_a_folder_of_that_name_has_shards(tmp_path: Path) -> None:
    """The folder of published tables is one of the storage's own."""
    location = f"{tmp_path}/_published/storage"
    create_or_open(f"{location}/a/t/v1", SCHEMA, shard_id="u1")

    assert [each.owner for page in pages(location) for each in page] == ["u1"]


def test_nothing_is_listed_where_nothing_is(tmp_path: object) -> None:
    assert list(pages(f"{tmp_path}/none")) == [[]]


@pytest.mark.parametrize("most", [1, 100])
def test_published_tables_are_listed_where_they_are_asked_for(
    shards: Place, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """By the id under which they are deleted; an older operator, which does not ask, is sent none."""
    monkeypatch.setattr(shard_listing, "PAGE_SHARDS", most)
    names = ["_published/a/t", "_published/b/v1", "_published/b/v2"]
    for name in names:
        options = TableOptions(f"{shards.location}/{name}", "ns." + name.split("/", 1)[1].replace("/", "."))
        view = shard(shards, name.replace("_published", "made") + "/v1")
        view.compare_and_append(
            pa.table({"a": [1], "__time": [0], "__diff": [1]}), expected_upper=0, new_upper=1, term=1
        )
        TablePublication(view, options).publish(Time(0))
    remove_published(f"{shards.location}/{names[2]}", "ns.b.v2")

    found = [each for page in pages(shards.location, (), published=True) for each in page]

    tables = {each.owner: each for each in found if each.owner.startswith("published/")}
    assert {owner: each.location for owner, each in tables.items()} == {
        "published//ns.a.t": f"{shards.location}/{names[0]}",
        "published//ns.b.v1": f"{shards.location}/{names[1]}",
    }
    assert all(each.bytes > 100 and not each.error for each in tables.values())
    assert len(found) == len(tables) + len(NAMES)
    plain = [each.location for page in pages(shards.location) for each in page]
    assert sorted(plain) == sorted(each.location for each in found if each not in tables.values())
