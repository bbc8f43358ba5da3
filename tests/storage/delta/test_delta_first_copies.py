"""The first rows of a large table are copied beside the ticks of the others, and bound at one time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import WriterProperties, write_deltalake

from tests.storage.delta.copied_tables import FILES, ROWS, Added, Gate, ids
from tests.storage.delta.delta_tables import bound_versions, check, delta_rows, ingested_rows, ingester, spec_of, tick
from tests.storage.dying_appends import die_after
from tests.storage.ingestion_samples import description, oks
from tests.waiting import until
from tidemark_persist import ShardWriters, StorageError, open_shard
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.delta import changes, pieces, reading, source
from tidemark_replica.storage.delta.copies import table_copy
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.delta.reading import RowReader
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.ingestion_threads import IngestionThreads


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def test_the_other_tables_tick_while_a_large_one_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """Its frontier stands still, its progress is seen; the version is that of the beginning, later ones follow."""
    added = Added(tmp_path, monkeypatch)
    monkeypatch.setattr(pieces, "ACTIVITY_SECONDS", 0.0)
    version, percents = Table(added.big).version(), []
    for n in range(FILES):
        added.ticks()
        until(lambda n=n: gate.reached == n + 1)  # type: ignore[misc]
        write_deltalake(added.big, ids(200 + n), mode="append")
        added.ticks()
        assert (added.upper("small"), added.upper("big")) == (added.now + 1, 0)
        percents.append(added.percent())
        assert f"reads table big up to version {version}: {percents[-1]}% of" in added.one._source.activity()
        gate.let(1)
    assert percents == sorted({n for n in percents if n is not None and n < 100})
    added.settles()

    first = min(bound_versions(tmp_path, "big").items())
    assert first == (added.now, version)
    assert open_shard(f"{tmp_path}/big").state().since == added.now
    assert len(oks(tmp_path, "big", added.now)) == 2 * FILES
    gate.open()
    added.ticks()
    check(tmp_path, added.spec)
    assert len(oks(tmp_path, "big")) == 3 * FILES
    assert added.percent() is None


def test_a_small_table_overtakes_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Also one that is added later: the thread takes the table with the least to read after each piece."""
    added = Added(tmp_path, monkeypatch)
    added.ticks()
    until(lambda: gate.reached == 1)
    write_deltalake(str(tmp_path / "up" / "late"), ids(7))
    late = DeltaTable("late", str(tmp_path / "up" / "late"))
    added.again(spec_of(*added.spec.tables, late))
    added.ticks()
    gate.let(1)
    added.settles("late")

    assert oks(tmp_path, "late") == [(7,)]
    assert added.upper("big") == 0
    assert gate.reached == 2  # the copy of before goes on
    gate.open()
    added.settles()
    assert gate.reached == FILES
    check(tmp_path, added.spec)


def test_a_table_that_is_removed_while_it_is_copied_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    added = Added(tmp_path, monkeypatch)
    added.ticks()
    gate.let(2)
    until(lambda: gate.reached == 3)
    assert len(added.staged()) == 2
    assert added.copies.writes(f"{tmp_path}/big")
    added.again(added.small_spec)
    assert added.copies.writes(f"{tmp_path}/big")
    gate.open()
    until(lambda: not added.copies.writes(f"{tmp_path}/big"))
    assert added.staged() == []
    added.ticks()


@pytest.mark.parametrize("died_after", range(1, 7))
def test_crash_around_the_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_after: int) -> None:
    """Before and after each append of that tick. The table begins later, with a version that is newer then."""
    added = Added(tmp_path, monkeypatch)

    def goes_on() -> None:
        added.settles()
        for _ in range(3):
            added.ticks()

    with monkeypatch.context() as dying:
        die_after(dying, died_after)
        with pytest.raises(KeyboardInterrupt):
            goes_on()
    write_deltalake(added.big, ids(999), mode="append")
    added.dies()
    added.settles()
    added.ticks()

    check(tmp_path, added.spec)
    assert oks(tmp_path, "big") == [*ROWS, (999,)]


@pytest.mark.parametrize("moment", ["before the binding", "after the binding", "before the rows"])
def test_a_source_that_fails_at_the_binding_keeps_the_copy_until_the_shard_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The process goes on: nothing of the copy is read twice before the append, and no file of the shard is deleted."""
    added = Added(tmp_path, monkeypatch)
    append, failing = Ingester._append, [moment]

    def fails(self: Ingester, shard: Any, data: Any, lower: int, *more: Any) -> None:
        of_binding = shard.location.endswith("remap") and data is not None
        if failing and of_binding and moment == "before the binding":
            failing.clear()
            raise StorageError("away")
        if failing and shard.location.endswith("big") and moment == "before the rows":
            failing.clear()
            raise StorageError("away")
        append(self, shard, data, lower, *more)
        if failing and of_binding and moment == "after the binding":
            failing.clear()
            raise StorageError("away")

    monkeypatch.setattr(Ingester, "_append", fails)
    with pytest.raises(StorageError):
        added.settles()
    gate = Gate(monkeypatch)
    gate.open()
    added.again()
    added.settles()

    assert gate.reached == (FILES if moment == "before the rows" else 0)
    check(tmp_path, added.spec)
    assert len(oks(tmp_path, "big")) == 2 * FILES
    added.dies()
    added.ticks()
    assert len(oks(tmp_path, "big")) == 2 * FILES


@pytest.mark.parametrize("on_gap", ["stop", "resnapshot"])
def test_a_version_that_vacuum_takes_meanwhile_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, on_gap: str
) -> None:
    """No reader has seen a row of the version, so none is skipped: the table begins with the newest version, with
    `stop` too. The other table goes on."""
    added = Added(tmp_path, monkeypatch, on_gap=on_gap)
    added.ticks()
    gate.let(2)
    until(lambda: gate.reached == 3)
    table = Table(added.big)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    gate.open()
    until(lambda: (copy := added.copies.find("big")) is None or copy.has_ended)
    added.ticks()
    assert "VersionGone: table big: file" in added.one._source.stop_reasons()["big"]
    until(lambda: added.staged() == [])
    if on_gap == "stop":
        assert added.one._source.retries()
        added.again()
    added.settles()

    assert added.one._source.stop_reasons() == {}
    assert bound_versions(tmp_path, "big")[added.now] == table.version()
    check(tmp_path, added.spec)


def test_a_store_that_fails_now_and_then_costs_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """The pieces that are staged stay. The status says why, and the other table goes on."""
    monkeypatch.setattr(table_copy, "RETRY_SECONDS", 0.3)
    added, failing, read = Added(tmp_path, monkeypatch), {3, 5, 6}, RowReader.updates

    def fails(reader: RowReader, *arguments: Any, **more: Any) -> Any:
        found = read(reader, *arguments, **more)
        if gate.reached in failing and reader.storage.location == added.big:
            raise StorageError("the store is away")
        return found

    monkeypatch.setattr(RowReader, "updates", fails)
    gate.open()
    added.ticks()
    said: list[str] = []
    until(lambda: said.extend(added.one._source.stop_reasons().values()) or said)
    assert said[0] == "SnapshotFailed: table big: StorageError: the store is away; it is tried again"
    assert added.one._source.retries()  # with credentials that are read anew
    added.settles()

    assert gate.reached == FILES + len(failing)
    assert added.one._source.stop_reasons() == {}
    check(tmp_path, added.spec)


def test_files_of_a_copy_that_are_old_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """A staged file that is gone lets the copy begin anew."""
    added = Added(tmp_path, monkeypatch)
    added.ticks()
    gate.open()
    until(lambda: (copy := added.copies.find("big")) is not None and copy.is_whole)
    first = set(added.staged())
    monkeypatch.setattr(source, "BIND_SECONDS", -1.0)
    min(first).unlink()
    added.ticks()
    assert added.upper("big") == 0
    monkeypatch.setattr(source, "BIND_SECONDS", 3600.0)
    added.settles()

    check(tmp_path, added.spec)
    assert not first & set(added.staged())


def test_a_source_that_is_dropped_ends_its_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Its tables may be deleted once no copy writes there."""
    added = Added(tmp_path, monkeypatch)
    of, now = description(tmp_path / "store", added.spec, tables_of(added.spec)), Time(int(time.time() * 1000))
    threads, shard = IngestionThreads(None, ShardWriters(), tmp_path / "cache"), f"{tmp_path}/store/big"
    threads.run(RunIngestion(of, WriterTerm(1), now, 300_000), ControllerClock(now, 300_000))
    try:
        gate.let(2)
        until(lambda: gate.reached == 3)
        until(lambda: open_shard(f"{tmp_path}/store/small").state().upper > 0)
        threads.drop(of.id)
        assert threads.is_ending(shard)
        gate.open()
        until(lambda: not threads.is_ending(shard))
        assert list(Path(shard).glob("**/*.parquet")) == []
    finally:
        threads.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The percents of all readings, with each batch of 50 rows."""
    percents, add = list[int](), pieces.Reading.add
    monkeypatch.setattr(reading, "BATCH_ROWS", 50)
    monkeypatch.setattr(pieces.Reading, "add", lambda self, n: [add(self, n), percents.append(self.percent)][0])
    return percents


def test_the_percent_moves_within_a_file(tmp_path: Path, told: list[int]) -> None:
    write_deltalake(f"{tmp_path}/up", ids(*range(500)))
    one = ingester(tmp_path, spec_of(DeltaTable("t", f"{tmp_path}/up")))
    one.recover()
    tick(one, 1000)
    assert told == sorted(told)
    assert len(set(told)) == 10
    assert told[-1] == 100


@pytest.mark.parametrize("twice_bytes", [-1, 1 << 20])
def test_a_resnapshot_comes_to_100_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[int], twice_bytes: int
) -> None:
    """The rows that the table has are read, too, and are a part of it; large ones are read twice."""
    monkeypatch.setattr(changes, "TWICE_BYTES", twice_bytes)
    write_deltalake(f"{tmp_path}/up", ids(*range(500)))
    spec = spec_of(DeltaTable("t", f"{tmp_path}/up", on_gap="resnapshot"))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 1000)
    shutil.rmtree(tmp_path / "up")
    write_deltalake(f"{tmp_path}/up", ids(*range(100, 700)))
    told.clear()
    tick(one, 1100)

    assert one._source.stop_reasons() == {}
    assert told == sorted(told)
    assert len(set(told)) > 10
    assert told[-1] == 100
    assert ingested_rows(tmp_path, "t", 1100) == delta_rows(f"{tmp_path}/up", 0, ("id",))


@pytest.mark.slow
def test_the_memory_of_a_copy_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """The table is one file, in row groups of 100,000 rows; another process copies it."""

    def peak(rows: int) -> int:
        at = tmp_path / str(rows)
        write_large(f"{at}/up", rows)
        program = f"from {__name__} import copied_peak; print(copied_peak({str(at)!r}))"
        return int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout)

    assert peak(20_000_000) < peak(2_000_000) + (32 << 20)


def write_large(path: str, rows: int) -> None:
    """A Delta table of one file."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    draw = np.random.default_rng(1)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, 100_000):
            yield pa.record_batch([np.arange(first, first + 100_000), draw.integers(0, 1 << 60, 100_000)], schema)

    properties = WriterProperties(max_row_group_size=100_000)
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    write_deltalake(path, reader, writer_properties=properties, target_file_size=1 << 40)


def copied_peak(at: str) -> int:
    """The most bytes that Arrow had in this process, which copies a table."""
    one = ingester(Path(at), spec_of(DeltaTable("t", f"{at}/up")))
    one.recover()
    tick(one, 1000)
    assert not one._source.unbound_tables()
    return int(pa.default_memory_pool().max_memory())
