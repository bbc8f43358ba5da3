"""An ingestion whose store hangs delays neither the command loop nor the end of the process.

Here the store hangs in Python; test_hanging_store.py here and in tests/persist have a store that hangs below delta-rs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.replica.worker_loop import Loop
from tests.storage.ingestion_samples import description, tpch_tables
from tests.waiting import BOUND
from tidemark_persist import shard_writers
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import DeleteShard, RunIngestion
from tidemark_protocol.messages.responses import ShardDeleted
from tidemark_protocol.plan.ingestion import TpchSource
from tidemark_replica.command_loop.ingestion_commands import STOP_SECONDS, IngestionCommands
from tidemark_replica.command_loop.storage_state import StorageState
from tidemark_replica.spark.session import SparkHolder
from tidemark_replica.storage import ingestion_threads

SPEC = TpchSource("0.001", 100, 7)


class HangingStore:
    """Where shards are opened: nobody gets an answer before the test ends, and who has asked ends then."""

    def __init__(self) -> None:
        self.asked, self._over = list[str](), threading.Event()
        self.askers: list[IngestionCommands] = []

    def open(self, location: str, *arguments: Any, **options: Any) -> NoReturn:
        self.asked.append(location)
        self._over.wait()
        raise OSError("the test is over")

    def close(self) -> None:
        for ingestions in self.askers:
            assert ingestions._manager is not None
            for ingestion in ingestions._manager._running.values():
                ingestion.stop()
        self._over.set()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingStore]:
    store = HangingStore()
    monkeypatch.setattr(shard_writers, "create_or_open", store.open)
    yield store
    store.close()


def hanging(loop: Loop, store: HangingStore, folder: Path, many: int) -> IngestionCommands:
    """Ingestions, each of which waits for the store."""
    ingestions = IngestionCommands(SparkHolder(object), loop.jobs, folder / "cache")
    store.askers.append(ingestions)
    for n in range(many):
        of = replace(description(folder / str(n), SPEC, tpch_tables("nation")), id=GlobalId(f"s{n}"))
        ingestions.run(RunIngestion(of, WriterTerm(1), Time(int(time.time() * 1000)), 30_000))

    def all_ask() -> bool:
        ingestions.poll()
        return len(store.asked) == many

    loop.run_until(all_ask)
    return ingestions


def test_a_shard_is_deleted_while_an_ingestion_waits_for_its_store(store: HangingStore, tmp_path: Path) -> None:
    """The command loop takes the command, and all that come after it."""
    loop = Loop()
    ingestions = hanging(loop, store, tmp_path, 1)
    state = StorageState(ingestions, loop.handles, loop.watch, loop.jobs, loop.said.append, lambda: "/nowhere")
    (location,) = store.asked

    command = DeleteShard(ShardId("remap"), location)
    commands = threading.Thread(target=state.apply, args=[command], daemon=True)
    commands.start()
    commands.join(BOUND)
    assert not commands.is_alive(), "the command loop waits for the store"
    loop.run_until(lambda: ShardDeleted(command.id) in loop.said)


def test_the_end_waits_for_all_ingestions_together(
    monkeypatch: pytest.MonkeyPatch, store: HangingStore, tmp_path: Path
) -> None:
    """None of them ends: no more than the one pause passes, by a clock that only waiting moves."""
    ingestions = hanging(Loop(), store, tmp_path, 3)
    waited: list[float] = []
    monkeypatch.setattr(ingestion_threads, "monotonic", lambda: sum(waited), raising=False)
    monkeypatch.setattr(ingestion_threads._Ingestion, "join", lambda ingestion, timeout: waited.append(timeout))

    ingestions.shutdown()
    assert (len(waited), sum(waited)) == (3, STOP_SECONDS)
