"""Sources that cannot read anything twice: what was discovered is there once, wherever the ingester ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.ingestion_samples import description, oks
from tidemark_persist import DIFF, TIME, ShardWriters, StagedFile, open_shard, write_staged
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.ingestion import FilesSource, IngestedTable, SourceTable
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.storage.ingester import Ingester
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

    def held(self) -> Collection[str]:
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


def ingester(root: Path, tape: Tape, term: int) -> Ingester:
    spec = FilesSource(())  # the ingester does not look at it
    made = Mortal(description(root, spec, TABLES), WriterTerm(term), TapeIngestion(tape), ShardWriters())
    made.recover()
    return made


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
