"""Shards are deleted while this process writes them: deleted files stay away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.published.test_publication import View, contents
from tests.replica.worker_loop import Loop
from tests.storage.ingestion_samples import description, tpch_tables
from tests.waiting import BOUND
from tidemark_persist import Shard, ShardDeleted, create_or_open, shard_writers
from tidemark_persist.log import deletion
from tidemark_protocol.ids import ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import DeleteShard, DropIngestion, RunIngestion
from tidemark_protocol.messages.responses import ShardDeleted as Deleted
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import IngestionDescription, TpchSource
from tidemark_protocol.plan.sinks.publish import removal_id
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.command_loop import storage_state
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.command_loop.storage_state import StorageState
from tidemark_replica.shards import shards
from tidemark_replica.spark.session import SparkHolder

SPEC = TpchSource("0.001", 100, 7)


@dataclass
class SlowStore:
    """Where shards are made: whoever asks waits until it may."""

    asked: list[str] = field(default_factory=list)
    may: threading.Event = field(default_factory=threading.Event)

    def open(self, location: str, *arguments: Any, **options: Any) -> Shard:
        self.asked.append(location)
        assert self.may.wait(BOUND)
        return create_or_open(location, *arguments, **options)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStore]:
    store = SlowStore()
    monkeypatch.setattr(shard_writers, "create_or_open", store.open)
    monkeypatch.setattr(shards, "create_or_open", store.open)
    yield store
    store.may.set()


def state_of(loop: Loop, folder: Path) -> StorageState:
    ingestions = IngestionCommands(SparkHolder(object), loop.jobs, folder / "cache")
    return StorageState(ingestions, loop.handles, loop.watch, loop.jobs, loop.said.append, lambda: "/nowhere")


def dropped(loop: Loop, store: SlowStore, folder: Path) -> tuple[StorageState, IngestionDescription]:
    """An ingestion that is about to make its first shard when it is dropped, and its shards with it."""
    state = state_of(loop, folder)
    of = description(folder / "shards", SPEC, tpch_tables("nation"))
    state.apply(RunIngestion(of, WriterTerm(1), Time(int(time.time() * 1000)), 30_000))
    loop.run_until(lambda: store.asked, state.maintain)
    state.apply(DropIngestion(of.id))
    state.apply(DeleteShard(of.remap_id, of.remap_location))
    return state, of


def test_an_ingestion_that_is_being_set_up_makes_nothing_again(store: SlowStore, tmp_path: Path) -> None:
    """The deletion waits for it: else the table of the old owner would keep its location from the next one."""
    loop = Loop()
    state, of = dropped(loop, store, tmp_path)
    for _ in range(20):
        loop.run_until(lambda: True, state.maintain)
    assert Deleted(of.remap_id) not in loop.said

    store.may.set()
    loop.run_until(lambda: Deleted(of.remap_id) in loop.said, state.maintain)
    assert not Path(of.remap_location).exists()


def test_a_deletion_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, store: SlowStore, tmp_path: Path) -> None:
    """For one whose store does not answer."""
    monkeypatch.setattr(storage_state, "ENDING_SECONDS", 0.2)
    loop = Loop()
    state, of = dropped(loop, store, tmp_path)
    loop.run_until(lambda: Deleted(of.remap_id) in loop.said, state.maintain)


def test_a_deletion_that_starts_too_late_leaves_a_published_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The pool was occupied for an hour: the table may be that of the next Dataflow."""
    view = View(tmp_path, 1)
    of, at, loop = view.publication(tmp_path), Time(view.step(30)), Loop()
    of.publish(at)
    state = state_of(loop, tmp_path)
    monkeypatch.setattr(deletion, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3600))
    state.apply(DeleteShard(removal_id("", of.options.owner, of.options.location), of.options.location))
    loop.run_until(lambda: bool(loop.said), state.maintain)
    (answer,) = loop.said
    assert isinstance(answer, Deleted)
    assert "delete it again" in str(answer.error)
    assert contents(tmp_path) == view.at[at]


def test_a_view_that_is_being_set_up_makes_nothing_again(store: SlowStore, tmp_path: Path) -> None:
    """Whoever opens its table just then is told, and the table is gone."""
    loop = Loop()
    state = state_of(loop, tmp_path)
    table = ShardMetadata(ShardId("view"), str(tmp_path / "view"), (Column("k", BIGINT),))
    failed: list[Exception] = []

    def hydrate() -> None:
        try:
            loop.handles.writer(table)
        except ShardDeleted as error:
            failed.append(error)

    hydrating = threading.Thread(target=hydrate)
    hydrating.start()
    loop.run_until(lambda: store.asked)
    state.apply(DeleteShard(table.shard_id, table.location))
    loop.run_until(lambda: Deleted(table.shard_id) in loop.said, state.maintain)
    store.may.set()
    hydrating.join(BOUND)

    assert len(failed) == 1
    assert not Path(table.location).exists()
