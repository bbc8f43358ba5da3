"""A published table has, at each of its versions, exactly the rows that the view had at the time that the commit says.

Another reader than the writer's own code reads the table: delta-rs's query engine, at each version of its log.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction

from tidemark_persist import DIFF, ERROR, TIME, Shard, create_or_open
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.destinations.destination import SinkViewInError
from tidemark_replica.sinks.destinations.shard_contents import NegativeRows
from tidemark_replica.sinks.published import changed_files, lost_files, publication
from tidemark_replica.sinks.published.lost_files import LOOK_SECONDS, FileLook
from tidemark_replica.sinks.published.publication import Published, TablePublication
from tidemark_replica.sinks.published.published_table import (
    NotCommitted,
    PublishedByAnother,
    PublishedByLater,
    TableMoved,
    TableOptions,
    open_table,
)

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
Row = tuple[int, str | None, float | None, tuple[str, ...] | None]


class View:
    """A shard with random contents, and what it holds at each time, as a multiset."""

    def __init__(self, folder: Path, seed: int, keys: int = 40, shard_id: str = "u1") -> None:
        self.shard: Shard = create_or_open(str(folder / "shard"), SCHEMA, shard_id=shard_id)
        self.random, self.keys = random.Random(seed), keys
        self.at: dict[int, Counter[Row]] = {-1: Counter()}
        self.upper = 0

    def row(self) -> Row:
        k = self.random.randrange(self.keys)
        name = self.random.choice([None, "", "a", f"name {k}", "ü" * 3])
        price = self.random.choice([None, -0.0, float("inf"), k / 3 + 1])
        tags = self.random.choice([None, (), ("x",), ("x", f"{k}")])
        return (k, name, price, tags)

    def step(self, changes: int, times: int = 1) -> int:
        """Appends updates at some times; returns the last of them."""
        now, updates = Counter(self.at[self.upper - 1]), []
        for time in range(self.upper, self.upper + times):
            for _ in range(changes):
                there = list(now)
                if there and self.random.random() < 0.45:
                    row, diff = self.random.choice(there), -1
                else:
                    row, diff = self.row(), self.random.choice([1, 1, 1, 3])
                now[row] += diff
                if not now[row]:
                    del now[row]
                updates.append((row, time, diff))
            self.at[time] = Counter(now)
        self.append(updates, self.upper + times)
        return self.upper - 1

    def append(
        self, updates: list[tuple[Row, int, int]], upper: int, errors: Sequence[tuple[str, int, int]] = ()
    ) -> None:
        """`errors`: texts with time and count."""
        rows = [*((*row, time, diff, None) for row, time, diff in updates)]
        rows += [(None, None, None, None, time, diff, text) for text, time, diff in errors]
        fields = [*SCHEMA, pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()), pa.field(ERROR, pa.string())]
        columns = zip(*rows, strict=True) if rows else ((),) * len(fields)
        arrays = [pa.array(list(column), f.type) for column, f in zip(columns, fields, strict=True)]
        table = pa.table(arrays, pa.schema(fields))
        self.shard.compare_and_append(table if rows else None, expected_upper=self.upper, new_upper=upper, term=1)
        for time in range(self.upper, upper):
            self.at.setdefault(time, Counter(self.at[time - 1]))
        self.upper = upper

    def publication(self, folder: Path, file_bytes: int = 1 << 20) -> TablePublication:
        options = TableOptions(str(folder / "published"), "shop.flow.view")
        return TablePublication(self.shard, options, file_bytes)


def contents(folder: Path, version: int | None = None) -> Counter[Row]:
    """The rows of the published table, as another reader sees them."""
    table = DeltaTable(folder / "published", version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    assert found.column_names == SCHEMA.names
    return Counter(
        (row["k"], row["name"], row["price"], None if row["tags"] is None else tuple(row["tags"]))
        for row in found.to_pylist()
    )


def times_of_versions(folder: Path) -> dict[int, int]:
    """The time that each version's commit says."""
    found = {}
    for entry in sorted((folder / "published/_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        if "tidemark.time" in infos[0]:
            found[int(entry.stem)] = int(infos[0]["tidemark.time"])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_each_version_has_the_rows_of_its_time(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random histories, read at every version: small files that divide and merge, compaction of the shard, several
    publishers, files of one prefix or many."""
    view = View(tmp_path, seed)
    chance = random.Random(seed)
    monkeypatch.setattr(changed_files, "BATCH_ROWS", chance.choice([3, 65_536]))
    monkeypatch.setattr(changed_files, "FILES_PER_PREFIX_MAX", chance.choice([1, 3]))
    monkeypatch.setattr(publication, "REBUILD_ROWS", chance.choice([5, 1_000_000]))
    monkeypatch.setattr(publication, "IDLE_MS", chance.choice([0, 5]))
    file_bytes = chance.choice([500, 2_500, 1 << 20])
    for _ in range(10):
        time = view.step(chance.choice([0, 1, 5, 40]), chance.choice([1, 3]))
        if chance.random() < 0.2:
            view.shard.downgrade_since(chance.randrange(time + 1))
        at = Time(chance.randrange(max(view.shard.refresh().since, time - 2), time + 1))
        published = view.publication(tmp_path, file_bytes).publish(at)
        assert published.checked >= at
        assert view.at[published.checked] == view.at[published.time]
        assert published.rows == view.at[published.time].total()
    versions = times_of_versions(tmp_path)
    assert len(versions) > 1
    assert list(versions.values()) == sorted(versions.values())
    for version, time in versions.items():
        assert contents(tmp_path, version) == view.at[time], f"version {version}, time {time}"


def test_a_change_rewrites_the_files_of_its_rows_alone(tmp_path: Path) -> None:
    view = View(tmp_path, 1)
    rows: list[tuple[Row, int, int]] = [((k, f"name {k}", k / 3, None), 0, 1) for k in range(20_000)]
    view.append(rows, 1)
    view.at[0] = Counter(row for row, _, _ in rows)
    first = view.publication(tmp_path, 20_000).publish(Time(0))
    assert first.added >= 8
    view.append([((7, "name 7", 7 / 3, None), 1, -1), ((7, "another", 1.0, None), 1, 1)], 2)
    second = view.publication(tmp_path, 20_000).publish(Time(1))
    assert (second.removed, second.anew_because) == (1, "")
    assert second.added in (1, 2), "the new row may lie in another file than the old one"
    assert second.written_bytes < first.written_bytes / 3
    assert contents(tmp_path) == view.at[0] - Counter([rows[7][0]]) + Counter([(7, "another", 1.0, None)])


def test_rows_that_only_come_rewrite_nothing(tmp_path: Path) -> None:
    view = View(tmp_path, 1)
    view.append([((k, None, None, None), 0, 1) for k in range(1000)], 1)
    view.publication(tmp_path).publish(Time(0))
    view.append([((k, None, None, None), 1, 1) for k in range(1000, 1010)], 2)
    second = view.publication(tmp_path).publish(Time(1))
    assert (second.added, second.removed) == (1, 0)


def test_nothing_happens_at_a_time_that_is_published(tmp_path: Path) -> None:
    view = View(tmp_path, 2)
    time = Time(view.step(20))
    view.publication(tmp_path).publish(time)
    again = view.publication(tmp_path).publish(time)
    assert (again.time, again.added, list(times_of_versions(tmp_path))) == (time, 0, [0])


def test_an_empty_view_is_an_empty_table(tmp_path: Path) -> None:
    view = View(tmp_path, 3)
    view.append([], 1)
    view.publication(tmp_path).publish(Time(0))
    assert contents(tmp_path) == Counter()
    view.append([((1, None, None, None), 1, 1)], 2)
    view.publication(tmp_path).publish(Time(1))
    view.append([((1, None, None, None), 2, -1)], 3)
    view.publication(tmp_path).publish(Time(2))
    assert contents(tmp_path) == Counter()


def test_a_view_in_error_keeps_its_last_right_rows(tmp_path: Path) -> None:
    view = View(tmp_path, 4)
    time = Time(view.step(20))
    view.publication(tmp_path).publish(time)
    view.append([((1, "new", None, None), view.upper, 1)], view.upper + 1, [("division by zero", view.upper, 1)])
    with pytest.raises(SinkViewInError):
        view.publication(tmp_path).publish(Time(view.upper - 1))
    assert contents(tmp_path) == view.at[time]
    view.append([], view.upper + 1, [("division by zero", view.upper, -1)])
    view.publication(tmp_path).publish(Time(view.upper - 1))
    assert contents(tmp_path) == view.at[time] + Counter([(1, "new", None, None)])


def test_a_view_in_error_is_not_published_for_the_first_time(tmp_path: Path) -> None:
    view = View(tmp_path, 4)
    view.append([((1, None, None, None), 0, 1)], 1, [("division by zero", 0, 1)])
    with pytest.raises(SinkViewInError):
        view.publication(tmp_path).publish(Time(0))
    assert open_table(view.publication(tmp_path).options) is None


def test_fewer_than_no_copies_are_refused(tmp_path: Path) -> None:
    view = View(tmp_path, 5)
    view.append([((1, None, None, None), 0, -1)], 1)
    with pytest.raises(NegativeRows):
        view.publication(tmp_path).publish(Time(0))


def test_rows_of_another_program_are_replaced(tmp_path: Path) -> None:
    """It has appended a row: everything is written anew, and the reason is told."""
    view = View(tmp_path, 6)
    view.publication(tmp_path).publish(Time(view.step(20)))
    foreign = pa.table({"k": [99], "name": ["foreign"], "price": [None], "tags": [None]}, SCHEMA)
    write_deltalake(tmp_path / "published", foreign, mode="append")
    time = Time(view.step(5))
    published = view.publication(tmp_path).publish(time)
    assert published.anew_because.startswith("another program changed the table")
    assert contents(tmp_path) == view.at[time]


def test_compaction_by_another_program_is_no_change(tmp_path: Path) -> None:
    view = View(tmp_path, 7)
    for _ in range(4):
        view.publication(tmp_path).publish(Time(view.step(20)))
    DeltaTable(tmp_path / "published").optimize.compact()
    time = Time(view.step(20))
    assert view.publication(tmp_path).publish(time).anew_because == ""
    assert contents(tmp_path) == view.at[time]


def test_a_table_of_another_view_is_refused(tmp_path: Path) -> None:
    view = View(tmp_path, 8)
    time = Time(view.step(20))
    write_deltalake(tmp_path / "published", pa.table({"a": [1]}), name="mine")
    with pytest.raises(PublishedByAnother, match="holds table 'mine'"):
        view.publication(tmp_path).publish(time)
    assert DeltaTable(tmp_path / "published").version() == 0


def test_a_view_that_was_made_anew_goes_on_in_its_table(tmp_path: Path) -> None:
    """Its shard is another one, and its columns may be: one commit replaces rows and columns."""
    first = View(tmp_path / "first", 9)
    first.publication(tmp_path).publish(Time(first.step(20)))
    shard = create_or_open(str(tmp_path / "second"), pa.schema([pa.field("n", pa.int32())]), shard_id="u2")
    rows = pa.table({"n": pa.array([5], pa.int32()), TIME: [0], DIFF: [2]})
    shard.compare_and_append(rows, expected_upper=0, new_upper=1, term=1)
    TablePublication(shard, first.publication(tmp_path).options).publish(Time(0))
    table = DeltaTable(tmp_path / "published")
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    assert found.to_pylist() == [{"n": 5}, {"n": 5}]


def test_of_two_publishers_one_wins(tmp_path: Path) -> None:
    """Both read the same version; the second one's commit fails, and its files are gone."""
    view = View(tmp_path, 10)
    view.publication(tmp_path).publish(Time(view.step(30)))
    options = view.publication(tmp_path).options
    late = open_table(options)
    assert late is not None
    time = Time(view.step(30))
    view.publication(tmp_path).publish(time)
    publisher = view.publication(tmp_path)
    before = {file.name for file in (tmp_path / "published").glob("*.parquet")}
    with pytest.raises(TableMoved):
        publisher._update(late, Time(late.time_of(view.shard.shard_id) or 0), time)
    assert {file.name for file in (tmp_path / "published").glob("*.parquet")} == before
    assert contents(tmp_path) == view.at[time]


def test_unused_files_are_removed_and_live_ones_stay(tmp_path: Path) -> None:
    view = View(tmp_path, 11)
    publisher = TablePublication(view.shard, TableOptions(str(tmp_path / "published"), "shop.flow.view", 0))
    for _ in range(5):
        publisher.publish(Time(view.step(30)))
    orphan = tmp_path / "published" / "part--0123456789abcdef0123456789abcdef.parquet"
    pq.write_table(SCHEMA.empty_table(), orphan)
    table = open_table(publisher.options)
    assert table is not None
    assert table.remove_unused() >= 1
    assert not orphan.exists()
    assert contents(tmp_path) == view.at[view.upper - 1]


def test_an_earlier_revision_does_not_publish_after_a_later_one(tmp_path: Path) -> None:
    """Its replica may be cut off from the operator, and its shard has other columns: the later one's rows stay."""
    later, earlier = View(tmp_path / "later", 12), View(tmp_path / "earlier", 13, shard_id="u0")
    options = TableOptions(str(tmp_path / "published"), "shop.flow.view", uid="u", term=1)
    TablePublication(earlier.shard, options).publish(Time(earlier.step(20)))
    time = Time(later.step(20))
    TablePublication(later.shard, replace(options, term=2)).publish(time)
    with pytest.raises(PublishedByLater):
        TablePublication(earlier.shard, options).publish(Time(earlier.step(20)))
    assert contents(tmp_path) == later.at[time]


def test_columns_that_need_another_protocol(tmp_path: Path) -> None:
    """An edit adds a TIMESTAMP_NTZ, which readers of the old protocol could not read."""
    view = View(tmp_path, 14)
    view.publication(tmp_path).publish(Time(view.step(20)))
    schema = pa.schema([pa.field("s", pa.struct([pa.field("at", pa.timestamp("us"))]))])
    shard = create_or_open(str(tmp_path / "second"), schema, shard_id="u2")
    for upper in (0, 1):
        rows = pa.table({"s": pa.array([{"at": upper}], schema.field("s").type), TIME: [upper], DIFF: [1]})
        shard.compare_and_append(rows, expected_upper=upper, new_upper=upper + 1, term=1)
        TablePublication(shard, view.publication(tmp_path).options).publish(Time(upper))
    found = DeltaTable(tmp_path / "published")
    assert pa.table(QueryBuilder().register("t", found).execute("SELECT * FROM t").read_all()).num_rows == 2
    assert "timestampNtz" in (found.protocol().reader_features or ())


def test_a_file_outside_of_the_table_is_not_read(tmp_path: Path) -> None:
    """Another program names it in a commit that says to change no data."""
    view = View(tmp_path, 15)
    view.publication(tmp_path).publish(Time(view.step(20)))
    pq.write_table(
        pa.table({"k": [1], "name": ["secret"], "price": [1.0], "tags": [None]}, SCHEMA), tmp_path / "a.parquet"
    )
    action = AddAction("../a.parquet", (tmp_path / "a.parquet").stat().st_size, {}, 0, False, "{}")
    table = DeltaTable(tmp_path / "published")
    table.create_write_transaction([action], "append", table.schema())
    time = Time(view.step(20))
    assert "another program" in view.publication(tmp_path).publish(time).anew_because
    assert contents(tmp_path) == view.at[time]


def test_a_file_that_is_gone_is_written_anew(tmp_path: Path) -> None:
    view = View(tmp_path, 16)
    view.publication(tmp_path).publish(Time(view.step(40)))
    for file in (tmp_path / "published").glob("*.parquet"):
        file.unlink()
    time = Time(view.step(40))
    not_due = FileLook(due=float("inf"))
    outcome = replace(view.publication(tmp_path), look=not_due).publish(time)
    assert "cannot be read" in outcome.anew_because
    assert contents(tmp_path) == view.at[time]


def test_a_lost_file_that_no_change_touches_is_found_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are asked for in turn, some of them in LOOK_SECONDS; a view that does not change is looked at, too."""
    monkeypatch.setattr(lost_files, "LOOK_FILES", 2)
    view, now = View(tmp_path, 23, keys=400), [0.0]
    look = FileLook(lambda: now[0])

    def publish() -> Published:
        publication = replace(view.publication(tmp_path), file_bytes=100, look=look)
        return publication.publish(Time(view.step(0)))

    first = replace(view.publication(tmp_path), file_bytes=100).publish(Time(view.step(300)))
    files = sorted((tmp_path / "published").glob("*.parquet"))
    assert first.rows
    assert len(files) > 8, len(files)
    assert not publish().anew_because
    files[5].unlink()
    assert not publish().anew_because, "it is too early to look"
    for _ in range(len(files) // 2):
        now[0] += LOOK_SECONDS
        if (outcome := publish()).anew_because:
            break
    assert f"file {files[5].name} of the table is lost" in outcome.anew_because
    assert contents(tmp_path) == view.at[view.upper - 1]
    now[0] += LOOK_SECONDS
    assert not publish().anew_because


def test_a_commit_that_is_refused_leaves_no_files(tmp_path: Path) -> None:
    """Somebody has asked for a feature of the table that the writer does not know."""
    view = View(tmp_path, 17)
    view.publication(tmp_path).publish(Time(view.step(20)))
    entry = tmp_path / "published/_delta_log" / f"{1:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]}
    entry.write_text(json.dumps({"protocol": protocol}))
    before = {file.name for file in (tmp_path / "published").glob("*.parquet")}
    for _ in range(2):
        with pytest.raises(NotCommitted, match="feature"):
            view.publication(tmp_path).publish(Time(view.step(5)))
    assert {file.name for file in (tmp_path / "published").glob("*.parquet")} == before


def test_rows_that_another_program_deleted_in_the_view_s_table_come_again_once(tmp_path: Path) -> None:
    """The view's correction adds them, and the published table has them still: it is written anew."""
    view = View(tmp_path, 15)
    time = Time(view.step(60))
    view.publication(tmp_path).publish(time)
    DeltaTable(view.shard.location).delete("k < 20")
    lost = [(row, view.upper, count) for row, count in view.at[time].items() if row[0] < 20]
    assert lost
    view.append(lost, view.upper + 1)
    outcome = view.publication(tmp_path).publish(Time(view.upper - 1))
    assert outcome.anew_because
    assert contents(tmp_path) == view.at[time]
    assert not view.publication(tmp_path).publish(Time(view.step(1))).anew_because
    assert contents(tmp_path) == view.at[view.upper - 1]
