"""The disk of the tables is full while a Delta table, or calls of clients, are ingested (`full_disk`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.disk_fixtures import fill
from tests.storage.delta import delta_tables
from tests.storage.full_disk import ROOMS, Ingested, batches, check_that_a_full_disk_is_told, numbers
from tests.storage.ingestion_samples import description
from tests.storage.written.written_tables import Writer, rows
from tests.waiting import until
from tidemark_persist import ShardWriters
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import DeltaTable, SourceTable
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.written.inbox import PendingWrite
from tidemark_replica.storage.written.refusal import WriteNotPossible, WriteUnknown


class OfDelta:
    """A Delta table with one commit for each batch."""

    table, is_whole = "t", True

    def __init__(self, root: Path, disk: Path) -> None:
        self.shards, self.upstream, self.now = disk, str(root / "upstream"), 1000
        self.more(0)
        self.spec = delta_tables.spec_of(DeltaTable("t", self.upstream))
        self.begin_again()

    def more(self, batch: int) -> None:
        write_deltalake(self.upstream, pa.table({"id": numbers(batch)}), mode="append")

    def tick(self) -> None:
        self.now += 100
        delta_tables.tick(self.ingester, self.now)

    def catch_up(self) -> None:
        self.tick()

    def begin_again(self) -> None:
        self.ingester = delta_tables.ingester(self.shards, self.spec)
        self.ingester.recover()


class OfCalls:
    """A written table with one call for each batch. The bodies wait elsewhere."""

    table, is_whole = "plain", True

    def __init__(self, root: Path, disk: Path) -> None:
        self.shards = disk
        self.writer = Writer(disk)
        self.writer.spool._folder = root / "spool"
        self.calls: dict[int, PendingWrite] = {}
        self.more(0)

    def more(self, batch: int) -> None:
        body = rows(*({"id": n} for n in numbers(batch)))
        self.calls[batch] = self.writer.put("plain", body, format="jsonl", key=f"batch {batch}")

    def tick(self) -> None:
        self.writer.tick()

    def catch_up(self) -> None:
        for _ in range(5):
            self.tick()
            for batch, call in list(self.calls.items()):
                try:
                    if call.answer(0) is not None:
                        del self.calls[batch]
                except (WriteNotPossible, WriteUnknown):
                    self.more(batch)
        assert self.calls == {}

    def begin_again(self) -> None:
        self.writer.begin_again()


KINDS: dict[str, Callable[[Path, Path], Ingested]] = {"delta": OfDelta, "written": OfCalls}


@ROOMS
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_told_and_with_room_each_row_is_there_once(
    tmp_path: Path, small_disk: Path, kind: str, room: int
) -> None:
    check_that_a_full_disk_is_told(KINDS[kind](tmp_path, small_disk), room)


def test_the_thread_of_a_source_goes_on_by_itself_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    """Meanwhile its status, which becomes a condition, says which folder and what to do."""
    of = OfDelta(tmp_path, small_disk)
    tables = tuple(SourceTable(t.name, t.columns or ()) for t in of.spec.tables)
    filler = fill(small_disk, 0)
    manager, said = IngestionThreads(None, ShardWriters(), tmp_path / "cache"), list[IngestionStatus]()  # type: ignore[arg-type]
    now = Time(int(time.time() * 1000))

    def is_so(state: str) -> bool:
        said.extend(each for each in manager.poll() if isinstance(each, IngestionStatus))
        return bool(said) and said[-1].state == state

    command = RunIngestion(description(small_disk, of.spec, tables), WriterTerm(2), now, 600_000)
    manager.run(command, ControllerClock(now, 600_000))
    try:
        until(lambda: is_so("failed"))
        assert str(small_disk) in said[-1].message
        assert "No space left on device" in said[-1].message
        assert "make room on its disk" in said[-1].message
        assert [table.errors > 0 for table in said[-1].tables] == [True]
        filler.unlink()
        until(lambda: is_so("running"))
    finally:
        manager.close()
    assert batches(of) == 1
