"""Other programs commit to a shard's table, or put a backup in its place: every handle ends with what the table then
has, and a caller that goes on from what it read before gets ForeignCommit.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.persist.model import COLUMNS, PHYSICAL, batch, contents
from tidemark_persist import (
    DIFF,
    ERROR,
    TIME,
    Appended,
    ForeignCommit,
    MaintenancePolicy,
    Shard,
    ShardMismatch,
    ShardReader,
    StorageError,
    create_or_open,
    delete_shard,
    open_shard,
    read_part,
)
from tidemark_persist.log import delta_log
from tidemark_persist.log.checkpoint import read_checkpoint
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import parse_entry
from tidemark_persist.log.state import TableState

Row = tuple[Any, ...]


def tidy_policy(retention: int) -> MaintenancePolicy:
    return MaintenancePolicy(
        checkpoint_commits=3,
        compact_runs=3,
        compact_rows_in_memory=3,
        vacuum_grace_seconds=0.0,
        log_retention_seconds=retention,
    )


def opened(location: Path | str, retention: int = 900) -> Shard:
    """A handle that looks for a table in its table's place at every look."""
    shard = create_or_open(str(location), COLUMNS, shard_id="s", policy=tidy_policy(retention))
    shard._log._gap_check_seconds = 0.0
    return shard


def append(shard: Shard, *rows: Row, diff: int = 1) -> None:
    upper = shard.refresh().upper
    rows_at = batch([(row, upper, diff) for row in rows])
    outcome = shard.compare_and_append(rows_at, expected_upper=upper, new_upper=upper + 1, term=1)
    assert isinstance(outcome, Appended)


def in_the_table(location: Path) -> dict[Row, int]:
    """The contents as another program reads them."""
    found = Counter[Row]()
    for row in DeltaTable(str(location)).to_pyarrow_table().to_pylist():
        values = (row["k"], row["v"])
        found[values if row[ERROR] is None else (*values, row[ERROR])] += row[DIFF]
    return {row: diff for row, diff in found.items() if diff}


def read(shard: ShardReader) -> dict[Row, int]:
    return contents(shard.snapshot(shard.refresh().upper - 1))


@dataclass
class Follower:
    """Reads as a dataflow does: the contents at a time, and then the updates alone. Begins anew where it is told."""

    shard: ShardReader
    kept: Counter[Row] = field(default_factory=Counter)
    upper: int = 0
    epoch: int | None = None
    told: list[ForeignCommit] = field(default_factory=list)

    def follow(self) -> None:
        try:
            if self.epoch is None:
                self._begin()
            else:
                self.shard.check_epoch(self.epoch)
                self._go_on()
        except ForeignCommit as foreign:
            self.told.append(foreign)
            self.epoch = None
            self.follow()

    def _begin(self) -> None:
        self.epoch = self.shard.epoch
        upper = self.shard.refresh().upper
        self.kept = Counter()
        if upper:
            self._add(self.shard.snapshot_parts(upper - 1))
        self.shard.check_epoch(self.epoch)
        self.upper = upper

    def _go_on(self) -> None:
        upper = self.shard.refresh().upper
        self._add(self.shard.listen(self.upper, upper, self.epoch))
        self.upper = upper

    def _add(self, parts: list[Any]) -> None:
        for row in (row for part in parts for piece in read_part(part) for row in piece.to_pylist()):
            values = (row["k"], row["v"])
            self.kept[values if row[ERROR] is None else (*values, row[ERROR])] += row[DIFF]

    def contents(self) -> dict[Row, int]:
        return {row: diff for row, diff in self.kept.items() if diff}


def delete(location: Path, row: Row = ("b", 2)) -> None:
    DeltaTable(str(location)).delete(f"k = '{row[0]}'")


def insert(location: Path, row: Row = ("c", 3), time: int = 0) -> None:
    rows = pa.table({"k": [row[0]], "v": [row[1]], TIME: [time], DIFF: [1], ERROR: [None]}, schema=PHYSICAL)
    write_deltalake(str(location), rows, mode="append")


def update(location: Path) -> None:
    DeltaTable(str(location)).update({"v": "v + 1"}, predicate="k = 'a'")


def restore(location: Path) -> None:
    table = DeltaTable(str(location))
    table.restore(table.version() - 1)


def optimize(location: Path) -> None:
    DeltaTable(str(location)).optimize.compact()


FIRST_ROW = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000",
    "sizeInBytes": 34,
    "cardinality": 1,
}
"""A deletion vector of row 0, in the log itself."""


def parse_actions(location: Path, version: int) -> list[dict[str, Any]]:
    text = (location / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def commit(location: Path, *actions: dict[str, Any]) -> None:
    """The next entry of the log, as another program writes it."""
    version = DeltaTable(str(location)).version() + 1
    (location / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def append_d(location: Path) -> None:
    append(opened(location), ("d", 4))


def put_back(location: Path, backup: Path) -> None:
    shutil.rmtree(location)
    shutil.copytree(backup, location)


def tidy(writer: Shard) -> None:
    for work in writer.maintenance_due():
        writer.run_maintenance(work)


@pytest.mark.parametrize(
    ("commit", "operation"), [(delete, "DELETE"), (insert, "WRITE"), (update, "UPDATE"), (restore, "RESTORE")]
)
def test_a_handle_that_follows_accepts_the_contents_and_tells_by_name(
    tmp_path: Path, commit: Callable[[Path], None], operation: str
) -> None:
    writer, watcher = opened(tmp_path / "t"), opened(tmp_path / "t")
    for row in (("a", 1), ("b", 2)):
        append(writer, row)
    follower = Follower(watcher)
    follower.follow()
    version, epoch = watcher.state().version, writer.epoch
    commit(tmp_path / "t")

    with pytest.raises(ForeignCommit):
        writer.compare_and_append(None, expected_upper=2, new_upper=3, term=1, epoch=epoch)
    follower.follow()
    (told,) = follower.told
    assert f"version {version + 1} ({operation})" in str(told)
    assert str(tmp_path / "t") in str(told)
    assert follower.contents() == read(writer) == read(open_shard(str(tmp_path / "t"))) == in_the_table(tmp_path / "t")
    append(writer, ("d", 4))
    follower.follow()
    assert follower.contents() == in_the_table(tmp_path / "t")
    assert len(follower.told) == 1


def test_a_checkpoint_far_ahead_may_have_a_foreign_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle that is far behind reads what the table then has, in another epoch; it refuses rows after the upper, as
    one does that opens the table."""
    monkeypatch.setattr(delta_log, "FAR_BEHIND", 16)
    used = list[bool]()

    def noted(*of: Any) -> TableState | None:
        found = read_checkpoint(*of)
        used.append(found is not None)
        return found

    monkeypatch.setattr(delta_log, "read_checkpoint", noted)
    writer = opened(tmp_path / "s")
    append(writer, ("a", 1), ("b", 2))
    handles = [open_shard(writer.location) for _ in range(2)]
    epoch = handles[0].epoch
    _go_far_ahead(writer)
    insert(tmp_path / "s")
    _go_far_ahead(writer)
    DeltaTable(writer.location).create_checkpoint()

    assert read(handles[0]) == in_the_table(tmp_path / "s")
    assert handles[0].epoch != epoch
    assert used == [True]
    insert(tmp_path / "s", time=1_000_000)
    DeltaTable(writer.location).create_checkpoint()
    with pytest.raises(ShardMismatch, match="not before the upper"):
        handles[1].refresh()
    assert used == [True, False]


def _go_far_ahead(shard: Shard) -> None:
    """Further than a handle follows entry by entry."""
    for n in range(20):
        append(shard, ("n", n))


def test_a_compaction_by_another_program_is_no_change(tmp_path: Path) -> None:
    writer = opened(tmp_path / "t")
    for row in (("a", 1), ("b", 2)):
        append(writer, row)
    follower = Follower(opened(tmp_path / "t"))
    follower.follow()
    optimize(tmp_path / "t")
    append(writer, ("c", 3))
    follower.follow()
    assert not follower.told
    assert follower.contents() == in_the_table(tmp_path / "t") == {("a", 1): 1, ("b", 2): 1, ("c", 3): 1}


def test_a_checkpoint_and_the_end_of_log_entries_hide_nothing(tmp_path: Path) -> None:
    """The handle finds a table whose log lacks what it has not read: it cannot tell, and says so."""
    writer, watcher = opened(tmp_path / "t", retention=0), opened(tmp_path / "t", retention=0)
    append(writer, ("a", 1), ("b", 2))
    follower = Follower(watcher)
    follower.follow()
    delete(tmp_path / "t")
    for at in range(4):
        append(writer, ("d", at))
    tidy(writer)
    follower.follow()
    assert follower.told
    assert follower.contents() == in_the_table(tmp_path / "t")


def test_a_lost_file_that_is_taken_out_of_the_table_is_a_change(tmp_path: Path) -> None:
    writer = opened(tmp_path / "t")
    append(writer, ("a", 1))
    (lost,) = (tmp_path / "t").glob("*.parquet")
    append(writer, ("b", 2))
    follower = Follower(opened(tmp_path / "t"))
    follower.follow()
    lost.unlink()
    DeltaTable(str(tmp_path / "t")).repair()
    follower.follow()
    assert len(follower.told) == 1
    assert follower.contents() == in_the_table(tmp_path / "t") == {("b", 2): 1}


def test_one_who_began_with_another_handle_is_told(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t")
    append(first, ("a", 1))
    with pytest.raises(ForeignCommit):
        second.listen(1, 1, first.epoch)
    assert Shard.of(first).epoch == first.epoch


def test_the_name_of_the_contents_stays_another_one_over_restarts(tmp_path: Path) -> None:
    """The writer finds the foreign commit in the log, and its commits keep it."""
    writer = opened(tmp_path / "t")
    append(writer, ("a", 1), ("b", 2))
    assert writer.contents_id == "s"
    delete(tmp_path / "t")
    restarted = opened(tmp_path / "t")
    append(restarted, ("d", 4))
    names = {shard.contents_id for shard in (restarted, opened(tmp_path / "t"), open_shard(str(tmp_path / "t")))}
    (name,) = names
    assert name.startswith("s@")
    for at in range(8):
        append(restarted, ("d", at))
        tidy(restarted)
    assert opened(tmp_path / "t").contents_id == name


@pytest.mark.parametrize("failing", range(8))
def test_a_store_that_fails_while_a_handle_loads_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Whichever entry cannot be read: the next look finds the same table."""
    writer, watcher = opened(tmp_path / "t"), opened(tmp_path / "t")
    append(writer, ("a", 1))
    watcher.refresh()
    epoch = watcher.epoch
    for at in range(5):
        append(writer, ("b", at))
    read_entry, reads = DeltaLog.read_entry, iter(range(100))

    def fails_once(log: DeltaLog, version: int) -> Any:
        if next(reads) == failing:
            raise StorageError("the store does not answer")
        return read_entry(log, version)

    monkeypatch.setattr(DeltaLog, "read_entry", fails_once)
    with suppress(StorageError):
        watcher._log.load()
    watcher.refresh()
    assert (watcher.epoch, watcher.contents_id) == (epoch, "s")
    assert read(watcher) == in_the_table(tmp_path / "t")


def test_an_entry_with_a_deletion_vector_is_another_program_s(tmp_path: Path) -> None:
    """A writer looks back over it once the table has none any more."""
    add = {"path": "x.parquet", "size": 1, "dataChange": True, "deletionVector": {"storageType": "u"}}
    assert parse_entry(3, json.dumps({"add": add}).encode()).is_foreign


@pytest.mark.parametrize("by_new_handle", [False, True])
def test_deletion_vectors_are_refused_until_they_are_purged(tmp_path: Path, by_new_handle: bool) -> None:
    """Spark writes them by DELETE, and REORG, whose commit changes no rows."""
    location = tmp_path / "t"
    writer = opened(location)
    append(writer, ("a", 1), ("b", 2))
    append(writer, ("c", 3))
    table = DeltaTable(str(location))
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)  # type: ignore[arg-type]
    (whole,) = (entry for entry in parse_actions(location, 1) if "add" in entry)
    path = whole["add"]["path"]
    gone = {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": True}}
    commit(
        location, {"commitInfo": {"operation": "DELETE"}}, gone, {"add": whole["add"] | {"deletionVector": FIRST_ROW}}
    )
    for refuse in (writer.refresh, opened(location).refresh, lambda: writer.snapshot(0)):
        with pytest.raises(ShardMismatch, match="deletion vectors"):
            refuse()

    left = pq.read_table(location / path).slice(1)
    pq.write_table(left, location / "purged.parquet")
    size = (location / "purged.parquet").stat().st_size
    purged = {"path": "purged.parquet", "size": size, "partitionValues": {}, "modificationTime": 0, "dataChange": False}
    gone = {"remove": gone["remove"] | {"dataChange": False, "deletionVector": FIRST_ROW}}
    commit(location, {"commitInfo": {"operation": "REORG"}}, gone, {"add": purged})
    if by_new_handle:
        writer = opened(location)
    append(writer, ("d", 4))
    assert read(writer) == read(opened(location)) == {("b", 2): 1, ("c", 3): 1, ("d", 4): 1}


@pytest.mark.parametrize("time", [7, None])
def test_rows_at_no_complete_time_are_refused_until_they_are_gone(tmp_path: Path, time: int | None) -> None:
    """Otherwise they would appear later, in a table that was corrected."""
    writer = opened(tmp_path / "t")
    append(writer, ("a", 1))
    insert(tmp_path / "t", ("c", 3), time)  # type: ignore[arg-type]
    for refuse in (writer.refresh, opened(tmp_path / "t").refresh, lambda: writer.snapshot(0)):
        with pytest.raises(ShardMismatch, match="delete them"):
            refuse()
    delete(tmp_path / "t", ("c", 3))
    append(writer, ("d", 4))
    assert read(writer) == in_the_table(tmp_path / "t") == {("a", 1): 1, ("d", 4): 1}


def test_a_shard_with_rows_at_no_complete_time_can_be_deleted(tmp_path: Path) -> None:
    writer = opened(tmp_path / "t")
    append(writer, ("a", 1))
    insert(tmp_path / "t", ("c", 3), 7)
    delete_shard(str(tmp_path / "t"), "s")
    assert not (tmp_path / "t" / "_delta_log").exists()


@dataclass(frozen=True)
class Step:
    """One step by one of the handles, or by another program."""

    kind: str
    at: int


KINDS = ["append", "append", "append", "follow", "follow", "tidy", "reopen", "swap"]
FOREIGN = ["delete", "insert", "update", "restore", "optimize", "alter", "backup", "put back"]
STEPS = st.builds(Step, st.sampled_from(KINDS + FOREIGN), st.integers(0, 5))
HISTORIES = st.tuples(st.sampled_from([0, 900]), st.lists(STEPS, min_size=5, max_size=16))


@settings(max_examples=30)
@given(HISTORIES)
def test_oracle_whoever_follows_has_what_the_table_has(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[int, list[Step]]
) -> None:
    """Writers, followers and other programs in any order: all agree with a fresh read by delta-rs."""
    run(tmp_path_factory.mktemp("t"), *history)


@pytest.mark.slow
@settings(max_examples=600, derandomize=False)
@given(HISTORIES)
def test_oracle_many_histories_with_other_programs(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[int, list[Step]]
) -> None:
    run(tmp_path_factory.mktemp("t"), *history)


def run(folder: Path, retention: int, steps: list[Step]) -> None:
    location = folder / "t"
    writers = [opened(location, retention), opened(location, retention)]
    append(writers[0], ("a", 1), ("b", 2))
    followers = [Follower(opened(location, retention)), Follower(writers[1])]
    for step in steps:
        act(folder, retention, writers, followers, step)
    for follower in followers:
        follower.follow()
    now = in_the_table(location)
    fresh = opened(location, retention)
    readings = [read(shard) for shard in (*writers, fresh, *(f.shard for f in followers))]
    assert [now] * len(readings) == readings
    assert [now] * len(followers) == [follower.contents() for follower in followers]
    assert {shard.refresh().upper for shard in writers} == {fresh.refresh().upper}


def act(folder: Path, retention: int, writers: list[Shard], followers: list[Follower], step: Step) -> None:
    location, at = folder / "t", step.at
    writer = writers[at % 2]
    match step.kind:
        case "append":
            append(writer, (["a", "b", "c"][at % 3], at), diff=-1 if at == 5 else 1)
        case "follow":
            followers[at % 2].follow()
        case "tidy":
            tidy(writer)
        case "reopen":
            writers[at % 2] = opened(location, retention)
        case "swap":  # a follower goes on with a writing handle that shares its log
            follower = followers[at % 2]
            follower.shard = Shard.of(follower.shard)
        case _:
            by_another_program(folder, step)


def by_another_program(folder: Path, step: Step) -> None:
    location = folder / "t"
    match step.kind:
        case "delete":
            delete(location, (["a", "b", "c"][step.at % 3], 0))
        case "insert":
            insert(location, ("c", step.at), 0)
        case "update":
            update(location)
        case "restore":
            table = DeltaTable(str(location))
            # only where vacuum has left all files of that version, and its log entry
            try:
                table.restore(max(1, table.version() - step.at))
            except Exception:
                return
        case "optimize":
            optimize(location)
        case "alter":
            DeltaTable(str(location)).alter.set_table_properties({"delta.checkpointInterval": str(7 + step.at)})
        case "backup":
            shutil.rmtree(folder / "backup", ignore_errors=True)
            shutil.copytree(location, folder / "backup")
        case "put back" if (folder / "backup").exists():
            put_back(location, folder / "backup")
