"""When an ingestion begins again because of a stopped table, and when it is not begun at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.storage.ingestion_samples import description, tpch_tables
from tests.waiting import BOUND, until
from tidemark_persist import ShardWriters
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.plan.ingestion import TpchSource
from tidemark_replica.storage import ingestion_threads
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.storage.tpch.source import TpchIngestion

SPEC = TpchSource("0.001", 100, 7)


class Stopped(TpchIngestion):
    """One of its tables is stopped. `ticks`: of each that began."""

    ticks: list[int]
    helps: bool

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self.ticks.append(0)
        super().resume(bound, upper, shards)

    def discover(self, time: Time) -> pa.Table:
        self.ticks[-1] += 1
        return super().discover(time)

    def stop_reasons(self) -> Mapping[str, str]:
        return {"nation": "ColumnChanged: for good"}

    def retries(self) -> bool:
        return self.helps


@pytest.mark.parametrize("helps", [True, False])
def test_it_begins_again_where_that_may_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, helps: bool) -> None:
    """Else the source keeps what it has of the other tables."""
    monkeypatch.setattr(Stopped, "helps", helps, raising=False)
    monkeypatch.setattr(Stopped, "ticks", [], raising=False)
    monkeypatch.setattr(ingestion_threads, "RETRY_STOPPED_S", 0.0)
    manager = IngestionThreads(None, ShardWriters(), tmp_path / "cache")
    monkeypatch.setattr(manager, "source_for", lambda *_: Stopped(SPEC, tmp_path / "cache"))
    now = Time(int(time.time() * 1000))
    of = description(tmp_path, SPEC, tpch_tables("nation", "region"))
    manager.run(RunIngestion(of, WriterTerm(1), now, 600_000), ControllerClock(now, 600_000))
    try:
        until(lambda: len(Stopped.ticks) > 2 if helps else sum(Stopped.ticks) > 3)
    finally:
        manager.close()
    assert (len(Stopped.ticks) > 1) is helps


def test_a_source_that_is_made_after_the_drop_is_not_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`interrupt` could not reach it: a wait for its upstream would keep the slot of a deleted DataSource in use."""
    made, dropped, closed = threading.Event(), threading.Event(), threading.Event()

    class Late(Stopped):
        def close(self) -> None:
            closed.set()

    def source_for(*_: object) -> Source:
        made.set()
        assert dropped.wait(BOUND)
        return Late(SPEC, tmp_path / "cache")

    monkeypatch.setattr(Stopped, "ticks", [], raising=False)
    manager = IngestionThreads(None, ShardWriters(), tmp_path / "cache")
    monkeypatch.setattr(manager, "source_for", source_for)
    now = Time(int(time.time() * 1000))
    of = description(tmp_path, SPEC, tpch_tables("nation", "region"))
    manager.run(RunIngestion(of, WriterTerm(1), now, 600_000), ControllerClock(now, 600_000))
    try:
        assert made.wait(BOUND)
        manager.drop(of.id)
        dropped.set()
        until(lambda: not manager.is_alive(of.id))
    finally:
        dropped.set()
        manager.close()
    assert (Stopped.ticks, closed.is_set()) == ([], True)
