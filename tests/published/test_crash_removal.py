"""A published table is deleted as a whole, whichever process dies meanwhile; no earlier publisher makes it again."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.published.test_publication import View, contents
from tests.published.test_readers import changed_table
from tests.s3_fixtures import Place
from tidemark_persist import PersistError, Storage, StorageError, delete_shard
from tidemark_persist.log import deletion
from tidemark_persist.log.deletion import SECONDS_MAX
from tidemark_persist.storage.storage import TOMBSTONE
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.published import publication, published_table, table_removal
from tidemark_replica.sinks.published.changed_files import Interrupted
from tidemark_replica.sinks.published.published_table import (
    LAST_TERM,
    NotCommitted,
    PublishedByLater,
    PublishedTable,
    TableOptions,
    TableReplacement,
    open_table,
)
from tidemark_replica.sinks.published.table_removal import TableBeingDeleted, remove_published

OWNER = "shop.flow.view"


class Killed(BaseException):
    """The process dies."""


def published(folder: Path, seed: int = 1) -> View:
    """A view, with a table of several commits that it has published."""
    view = View(folder, seed)
    for _ in range(3):
        view.publication(folder, 500).publish(Time(view.step(30)))
    return view


def remaining_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in (folder / "published").rglob("*"))


def test_on_a_disk_and_in_a_bucket(place: Place) -> None:
    of, _ = changed_table(place.location)
    remove_published(of.options.location, OWNER)
    assert open_table(of.options) is None
    storage = Storage.at(of.options.location)
    assert [*storage.list(""), *storage.list("_delta_log"), *storage.list("_tidemark")] == []
    remove_published(of.options.location, OWNER)


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_whenever_it_dies_the_next_attempt_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, newest_first: bool
) -> None:
    """It dies just before or after each change of the storage, one after the other, in whatever order the storage lists
    its files. No reader finds a table that lacks files, and no publisher writes one there."""
    view, listed = published(tmp_path), Storage.list
    monkeypatch.setattr(
        Storage, "list", lambda *of: sorted(listed(*of), key=lambda file: file.path, reverse=newest_first)
    )
    changes = {name: getattr(Storage, name) for name in ("remove", "write_json")}
    deaths, rounds = 0, 0

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> None:
            if before:
                raise Killed
            change(*arguments)
            raise Killed

        return run

    while (tmp_path / "published").exists():
        rounds += 1
        assert rounds < 200
        for name, change in changes.items():
            monkeypatch.setattr(Storage, name, dying(change))
        try:
            remove_published(str(tmp_path / "published"), OWNER)
        except Killed:
            deaths += 1
        for name, change in changes.items():
            monkeypatch.setattr(Storage, name, change)
        if (tmp_path / "published/_delta_log").exists() and list((tmp_path / "published/_delta_log").glob("*.json")):
            with pytest.raises(PersistError):
                view.publication(tmp_path).publish(Time(view.step(5)))
        if before and rounds == 3:
            break
    remove_published(str(tmp_path / "published"), OWNER)
    assert deaths >= 3
    assert not (tmp_path / "published").exists()


def test_a_publisher_that_has_read_the_table_does_not_commit(tmp_path: Path) -> None:
    view = published(tmp_path)
    options = TableOptions(str(tmp_path / "published"), OWNER, term=3)
    table = open_table(options)
    assert table is not None
    last = TableOptions(options.location, OWNER, term=LAST_TERM)
    assert table_removal._stop_publishers(Storage.at(options.location), last, math.inf)
    change = TableReplacement(Time(view.upper))
    with pytest.raises(NotCommitted):
        table.commit(view.shard.shard_id, change)
    with pytest.raises(PublishedByLater, match="being deleted"):
        publication.TablePublication(view.shard, options).publish(Time(view.step(5)))
    assert not contents(tmp_path), "no reader sees rows once the deletion has begun"


def test_nobody_makes_a_table_while_another_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = published(tmp_path)

    def refused(storage: Storage, path: str) -> None:
        raise StorageError(f"{path} cannot be deleted now")

    with monkeypatch.context() as during:
        during.setattr(Storage, "remove", refused)
        with pytest.raises(StorageError, match="cannot be deleted now"):
            remove_published(str(tmp_path / "published"), OWNER)
    for entry in (tmp_path / "published/_delta_log").glob("*"):
        entry.unlink()
    with pytest.raises(TableBeingDeleted):
        view.publication(tmp_path).publish(Time(view.step(5)))
    assert (tmp_path / "published" / TOMBSTONE).exists()


@pytest.mark.parametrize("uncommitted", [False, True])
def test_a_deletion_that_comes_too_late_changes_nothing(tmp_path: Path, uncommitted: bool) -> None:
    """It was asked for long ago: the table may be that of the next Dataflow."""
    published(tmp_path)
    if uncommitted:
        shutil.rmtree(tmp_path / "published/_delta_log")
    before = remaining_files(tmp_path)
    with pytest.raises(StorageError, match="delete it again"):
        remove_published(str(tmp_path / "published"), OWNER, until=time.monotonic() - 1)
    assert remaining_files(tmp_path) == before


@pytest.mark.parametrize("step", ["take_all_away", "write_json", "remove"])
def test_each_step_looks_at_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A step takes too long. The next one is not begun, and another attempt finishes."""
    published(tmp_path)
    now, of = [0.0], PublishedTable if step == "take_all_away" else Storage
    change, steps = getattr(of, step), list[str]()
    for module in (table_removal, deletion):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(*arguments: Any) -> None:
        steps.append(step)
        change(*arguments)
        now[0] += 2 * SECONDS_MAX

    with monkeypatch.context() as during:
        during.setattr(of, step, slow)
        with pytest.raises(StorageError, match="delete it again"):
            remove_published(str(tmp_path / "published"), OWNER)
    assert steps == [step]
    assert (tmp_path / "published" / TOMBSTONE).exists() == (step != "take_all_away")
    remove_published(str(tmp_path / "published"), OWNER)
    assert not (tmp_path / "published").exists()


def test_the_table_of_the_next_dataflow_stays(tmp_path: Path) -> None:
    """It has the name of the one that was deleted, whose deletion a replica carries out too late."""
    view = View(tmp_path, 1)
    options = TableOptions(str(tmp_path / "published"), OWNER, uid="u1")
    publication.TablePublication(view.shard, options).publish(Time(view.step(30)))
    later = publication.TablePublication(view.shard, replace(options, uid="u2"))
    time = Time(view.step(30))
    later.publish(time)
    before = remaining_files(tmp_path)
    remove_published(options.location, OWNER, "u1")
    assert (remaining_files(tmp_path), contents(tmp_path)) == (before, view.at[time])
    remove_published(options.location, OWNER, "u2")
    assert not (tmp_path / "published").exists()


@pytest.mark.parametrize("uid", ["u1", ""])
def test_a_table_that_does_not_say_its_dataflow_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: str
) -> None:
    """One that was published before tables said it; and a retained one, which is deleted for no Dataflow."""
    view = View(tmp_path, 1)
    options = TableOptions(str(tmp_path / "published"), OWNER, uid="" if uid else "u1")
    if uid:
        monkeypatch.setattr(published_table, "DATAFLOW", "another")
    publication.TablePublication(view.shard, options).publish(Time(view.step(30)))
    monkeypatch.undo()
    remove_published(options.location, OWNER, uid)
    assert not (tmp_path / "published").exists()


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/rows.parquet").write_bytes(b"")
    (tmp_path / "published/mine").symlink_to(tmp_path / "mine")
    remove_published(str(tmp_path / "published"), OWNER)
    assert (tmp_path / "mine/rows.parquet").exists()
    assert remaining_files(tmp_path) == ["published/mine"]


def test_a_publisher_whose_shard_was_deleted_makes_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replica is cut off: it has written the files when shard and table are deleted."""
    view = published(tmp_path)
    remove_published(str(tmp_path / "published"), OWNER)
    write_all = publication.TablePublication._write_all

    def then_deleted(*arguments: Any) -> None:
        write_all(*arguments)
        delete_shard(str(tmp_path / "shard"), view.shard.shard_id)

    monkeypatch.setattr(publication.TablePublication, "_write_all", then_deleted)
    with pytest.raises(PersistError):
        view.publication(tmp_path).publish(Time(view.upper - 1))
    assert [path for path in remaining_files(tmp_path) if path.endswith((".parquet", ".json"))] == []


def test_a_table_of_another_program_stays(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "published", pa.table({"a": [1]}), name="mine")
    remove_published(str(tmp_path / "published"), OWNER)
    assert DeltaTable(tmp_path / "published").version() == 0


def test_files_without_a_commit_go_too(tmp_path: Path) -> None:
    """The first publication died before its commit. Files of others stay."""
    (tmp_path / "published").mkdir()
    (tmp_path / "published/part-01-0123456789abcdef0123456789abcdef.parquet").write_bytes(b"")
    (tmp_path / "published/mine.parquet").write_bytes(b"")
    remove_published(str(tmp_path / "published"), OWNER)
    assert remaining_files(tmp_path) == ["published/mine.parquet"]


def test_a_publication_is_interrupted(tmp_path: Path) -> None:
    view = published(tmp_path)
    before = remaining_files(tmp_path)
    of = view.publication(tmp_path, 500)
    of.interrupted.set()
    time = Time(view.step(30))
    with pytest.raises(Interrupted):
        of.publish(time)
    assert remaining_files(tmp_path) == before
