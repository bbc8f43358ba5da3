"""The disk of the tables is full while a source is ingested: the source says so, nothing half-written is bound, and
with room it goes on.

before      [ bindings, table | filler        |  ]
a tick      [ bindings, table | filler        |✗ ]     an error that names the folder and what to do
meanwhile   [ bindings, table | filler        |  ]     each time that can be read has whole commits or calls
filler goes [ bindings, table, more           |  ]     each row is there once
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.storage.delta import delta_tables
from tests.storage.ingestion_samples import description, oks
from tests.storage.written.written_tables import Writer, rows
from tests.waiting import until
from tidemark_persist import PersistError, ShardWriters
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import DeltaTable, SourceTable
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.written.inbox import PendingWrite
from tidemark_replica.storage.written.refusal import WriteNotPossible, WriteUnknown
from tidemark_replica.values.failure_text import public_text_with_type

DISK = 16 << 20
PAGE = 4096
BATCH = 20_000
"""Rows of a commit or call: some 160 KB, which do not compress."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the shards."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, room: int) -> Path:
    """A file that leaves so many bytes."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - room))
    return filler


def numbers(batch: int) -> list[int]:
    """Different in all batches, without an order that would compress them."""
    return [(batch * BATCH + n) * 0x9E3779B97F4A7C15 % (1 << 63) for n in range(BATCH)]


class Ingested(Protocol):
    """A source of one table with one column of interest. `shards`: where its bindings and its table lie."""

    shards: Path
    table: str

    def more(self, batch: int) -> None:
        """The upstream gets another batch, as a whole."""

    def tick(self) -> None:
        """One tick. Raises what the ingester raises."""

    def catch_up(self) -> None:
        """Ticks until all batches are there; clients repeat calls that could not be written."""

    def begin_again(self) -> None:
        """As after a failure: a new ingester recovers. Raises what it raises."""


class OfDelta:
    """A Delta table with one commit for each batch."""

    table = "t"

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

    table = "plain"

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


def batches(of: Ingested, as_of: int | None = None) -> set[int]:
    """The batches that the table has, each of them whole and once."""
    found = sorted(row[0] for row in oks(of.shards, of.table, as_of))
    for count in range(10):
        if found == sorted(n for batch in range(count) for n in numbers(batch)):
            return set(range(count))
    raise AssertionError(f"{len(found)} rows are no whole batches")


def failure(attempt: Callable[[], None]) -> str:
    """What the attempt of an ingester says, as a condition shows it; empty where it succeeds."""
    try:
        attempt()
    except PersistError as error:
        return public_text_with_type(error)
    return ""


@pytest.mark.parametrize("room", [0, PAGE, 2 * PAGE, 4 * PAGE, 24 * PAGE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_said_and_with_room_each_row_is_there_once(
    tmp_path: Path, small_disk: Path, kind: str, room: int
) -> None:
    """With no room the binding fails, with more the commit of it, or the data that it names, or their commit."""
    of = KINDS[kind](tmp_path, small_disk)
    of.tick()
    assert batches(of) == {0}
    filler = fill(small_disk, room)
    of.more(1)
    said = failure(of.tick)
    assert str(small_disk) in said
    assert "No space left on device" in said
    assert "make room on its disk, or enlarge its volume" in said
    again = failure(of.begin_again) or failure(of.tick)  # as its thread does; a commit may find the last page
    assert not again or "make room on its disk" in again
    assert [file for file in small_disk.rglob("*") if file.suffix == ".tmp" or "#" in file.name] == []

    filler.unlink()
    assert batches(of) in ({0}, {0, 1})
    of.begin_again()
    of.more(2)
    of.catch_up()
    assert batches(of) == {0, 1, 2}


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
    assert batches(of) == {0}
