"""Sources that cannot read anything twice: what was discovered is there once, wherever the ingester ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.storage.delta.delta_tables import ingester as delta_ingester
from tests.storage.delta.delta_tables import spec_of
from tests.storage.ingestion_samples import description, oks
from tidemark_persist import (
    DIFF,
    TIME,
    IndeterminateCommit,
    MaintenancePolicy,
    Shard,
    ShardWriters,
    StagedFile,
    StorageError,
    open_shard,
    write_staged,
)
from tidemark_persist.log import transact
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import Change
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.ingestion import DeltaTable, FilesSource, IngestedTable, SourceTable
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.leftovers import Leftovers
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.storage.staged_bindings import REMAP_SCHEMA, StagedBindings, staged_files

COLUMNS = (Column("n", BIGINT, nullable=False),)
TABLES = tuple(SourceTable(name, COLUMNS) for name in ("a", "b"))
TICKS = range(1000, 1800, 100)


class Tape:
    """An upstream with one number for each tick, that forgets what was confirmed."""

    def __init__(self) -> None:
        self.kept = list(range(len(TICKS)))

    def after(self, position: int) -> list[int]:
        numbers = [n for n in self.kept if n >= position]
        if position and numbers and numbers[0] != position:
            raise AssertionError(f"position {position} is gone: {numbers}")
        return numbers

    def confirm(self, position: int) -> None:
        self.kept = [n for n in self.kept if n >= position]


class TapeIngestion(Source):
    """Table a has each number at a tick of its own. Table b is held until 3 was read, and has its rows at once."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, tape: Tape) -> None:
        self.tape, self.bindings = tape, StagedBindings()
        self.shards: dict[str, IngestedTable] = {}

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self.shards = {table.table.name: table for table, _ in shards.tables}
        self.bindings.resume(bound)

    @property
    def position(self) -> int:
        return int(self.bindings.positions.get(("", "next"), "0"))

    def unbound_tables(self) -> Collection[str]:
        return () if ("b", "tick") in self.bindings.positions else ("b",)

    def discover(self, time: Time) -> pa.Table:
        self.tape.confirm(self.position)  # all earlier bindings are in the tables
        found = self.tape.after(self.position)[:1]
        if not found:
            return self.bindings.binding({})
        changes: dict[tuple[str, str], str | None] = {("", "next"): str(found[0] + 1)}
        staged = {"a": self.written("a", found, time)}
        if found[0] == 3:
            staged["b"] = self.written("b", [0, 1, 2], Time(0))
            changes[("b", "tick")] = str(time)
        return self.bindings.binding(changes, staged)

    def written(self, name: str, numbers: list[int], time: Time) -> list[StagedFile]:
        count = len(numbers)
        rows = pa.table({"n": numbers, TIME: pa.array([time] * count, pa.int64()), DIFF: [1] * count})
        file = write_staged(self.shards[name].shard.location, rows)
        assert file is not None
        return [file]

    def confirm(self, binding: pa.Table) -> None:
        self.bindings.confirm(binding)

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        first = int(self.bindings.positions.get(("b", "tick"), "0"))
        return staged_files(binding, [t for t in tables if t.table.name != "b" or time >= first])


class Killed(Exception):
    pass


class Mortal(Ingester):
    """An ingester that ends before or after its n-th append."""

    ends_at, after = 0, False
    appends = 0

    def _append(self, *arguments: Any) -> None:
        Mortal.appends += 1
        ends = Mortal.appends == Mortal.ends_at
        if ends and not Mortal.after:
            raise Killed
        super()._append(*arguments)
        if ends:
            raise Killed


@pytest.fixture
def tape() -> Tape:
    return Tape()


def ingester(
    root: Path, tape: Tape, term: int, shards: ShardWriters | None = None, leftovers: Leftovers | None = None
) -> Ingester:
    spec = FilesSource(())  # the ingester does not look at it
    shards = shards or ShardWriters()
    made = Mortal(description(root, spec, TABLES), WriterTerm(term), TapeIngestion(tape), shards, leftovers)
    made.recover()
    return made


class Refusing:
    """Commits to shards of which the location has this end fail, though data files are written. `left`: how many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, end: str, lands: bool = False) -> None:
        self.left, put = 0, DeltaLog._put
        monkeypatch.setattr(transact, "PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(transact, "UNKNOWNS_MAX", 1)

        def refuse(log: DeltaLog, change: Change) -> None:
            refused = self.left > 0 and log.storage.location.endswith(end) and change.upper is not None
            if refused and lands:
                put(log, change)
            if refused:
                self.left -= 1
                raise OSError("the store takes no commit")
            put(log, change)

        monkeypatch.setattr(DeltaLog, "_put", refuse)


@pytest.mark.parametrize("end", ["remap", "/a"])
def test_files_of_commits_that_failed_go_with_the_one_that_lands(
    tmp_path: Path, tape: Tape, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Files of bindings that name them go, and those of appends; what is in the tables stays."""
    Mortal.ends_at = 0
    shards, leftovers, refusing = ShardWriters(), Leftovers(), Refusing(monkeypatch, end)
    now = ingester(tmp_path, tape, 1, shards, leftovers)
    now.tick(Time(1000))
    refusing.left = 3
    for time in (1100, 1200, 1300):
        with pytest.raises(IndeterminateCommit):
            (now := ingester(tmp_path, tape, 1, shards, leftovers)).tick(Time(time))
    found = len(list(tmp_path.glob("a/*.parquet")))
    assert found == (4 if end == "remap" else 2)  # recovery appends the files that the binding names
    now = ingester(tmp_path, tape, 1, shards, leftovers)
    for time in range(1400, 2100, 100):
        now.tick(Time(time))

    assert oks(tmp_path, "a") == [(n,) for n in range(len(TICKS))]
    assert oks(tmp_path, "b") == [(0,), (1,), (2,)]
    for name, files in (("a", len(TICKS)), ("b", 1)):
        assert len(list(tmp_path.glob(f"{name}/*.parquet"))) == files


def test_files_of_a_commit_that_landed_after_all_stay(
    tmp_path: Path, tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mortal.ends_at = 0
    shards, leftovers = ShardWriters(), Leftovers()
    refusing = Refusing(monkeypatch, "remap", lands=True)
    now = ingester(tmp_path, tape, 1, shards, leftovers)
    refusing.left = 1

    def silent(log: DeltaLog, slot: int, change: Change, error: BaseException) -> bool:
        raise StorageError("the store does not answer")

    with monkeypatch.context() as away:
        away.setattr(DeltaLog, "_resolve", silent)
        with pytest.raises(IndeterminateCommit):
            now.tick(Time(1000))
    now = ingester(tmp_path, tape, 1, shards, leftovers)
    for time in range(1100, 1900, 100):
        now.tick(Time(time))
    assert oks(tmp_path, "a") == [(n,) for n in range(len(TICKS))]


def test_a_table_whose_commits_fail_keeps_no_file_of_a_try(
    tmp_path: Path, tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Delta table is read anew for each try. Vacuum takes the files that processes before have left."""
    path = str(tmp_path / "up")
    write_deltalake(path, pa.table({"id": [1]}))
    spec, shards, leftovers = spec_of(DeltaTable("t", path)), ShardWriters(), Leftovers()

    def again() -> Ingester:
        return delta_ingester(tmp_path, spec, shards=shards, leftovers=leftovers)

    def files() -> int:
        return len(list(tmp_path.glob("t/*.parquet")))

    now = again()
    now.recover()
    now.tick(Time(1000))
    refusing = Refusing(monkeypatch, "/t")
    refusing.left = 3
    write_deltalake(path, pa.table({"id": [2]}), mode="append")
    with pytest.raises(IndeterminateCommit):
        now.tick(Time(1100))
    for _ in range(2):
        with pytest.raises(IndeterminateCommit):
            again().recover()
    assert files() == 1 + 3
    again().recover()
    assert files() == 2
    assert oks(tmp_path, "t") == [(1,), (2,)]

    refusing.left = 2
    write_deltalake(path, pa.table({"id": [3]}), mode="append")
    for fails in (True, True, False):
        shards, leftovers = ShardWriters(), Leftovers()  # another process
        now = again()
        with pytest.raises(IndeterminateCommit) if fails else nullcontext():
            (now.recover(), now.tick(Time(1200)))
    assert files() == 3 + 2
    policy = MaintenancePolicy(orphan_age_seconds=0.0, vacuum_grace_seconds=0.0)
    [(_, shard)] = now.table_shards()
    for _ in range(2):
        for work in (vacuuming := Shard.of(shard, policy)).maintenance_due():
            vacuuming.run_maintenance(work)
    assert files() == 3
    assert oks(tmp_path, "t") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("ends_at", range(1, 20))
def test_each_number_is_there_once_wherever_the_ingester_ends(
    tmp_path: Path, tape: Tape, ends_at: int, after: bool
) -> None:
    Mortal.appends, Mortal.ends_at, Mortal.after = 0, ends_at, after
    times, term, now = list(TICKS), 1, None
    while times:
        try:
            now = now or ingester(tmp_path, tape, term)
            time = times.pop(0)
            now.tick(Time(time))
        except Killed:
            now, term = None, term + 1
            times.append((times or [time])[-1] + 100)
    ingester(tmp_path, tape, term + 1)

    assert oks(tmp_path, "a") == [(n,) for n in range(len(TICKS))]
    assert oks(tmp_path, "b") == [(0,), (1,), (2,)]
    assert tape.kept[:-1] == []


def test_a_held_table_shows_no_time_before_its_first_rows(tmp_path: Path, tape: Tape) -> None:
    Mortal.ends_at = 0
    now = ingester(tmp_path, tape, 1)
    uppers = []
    for time in TICKS[:5]:
        now.tick(Time(time))
        uppers.append(open_shard(f"{tmp_path}/b").state().upper)
    assert uppers == [0, 0, 0, 1301, 1401]
    assert oks(tmp_path, "b", as_of=0) == [(0,), (1,), (2,)]


def test_staged_files_are_named_for_one_tick(tmp_path: Path) -> None:
    """The next binding retracts their rows, so that the live rows are those of one tick."""
    bindings = StagedBindings()
    first = bindings.binding({("t", "p"): "1"}, {"t": [StagedFile("f", 1, 1, 0, 0, 0)]})
    bindings.confirm(first)
    assert bindings.binding({("t", "p"): None}).to_pylist() == [
        {"table": "t", "entry": "staged/0", "value": StagedFile("f", 1, 1, 0, 0, 0).to_json(), DIFF: -1},
        {"table": "t", "entry": "p", "value": "1", DIFF: -1},
    ]
    assert bindings.binding({("t", "p"): "1"}).num_rows == 1


def test_a_position_is_no_staged_file() -> None:
    with pytest.raises(ValueError, match="staged/0"):
        StagedBindings().binding({("t", "staged/0"): "1"})
