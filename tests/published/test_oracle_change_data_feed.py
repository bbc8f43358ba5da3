"""The change data feed of a published table, folded up to any version, is the table's rows at that version, and those
of the view at its time; and the feed has no row that did not change.

delta-rs reads it, which is not what writes the table's files; Spark does in test_readers.py.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.published.test_publication import Row, View, contents, times_of_versions
from tests.published.test_view_errors import FailingView
from tidemark_persist import StorageError, create_or_open
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.published import changed_files, publication
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import ColumnsNotSupported, PublishedTable, TableMoved, open_table


class Killed(BaseException):
    """The process dies."""


def fed(view: View, folder: Path, file_bytes: int = 1 << 20) -> TablePublication:
    """A publication with a change data feed."""
    of = view.publication(folder, file_bytes)
    return replace(of, options=replace(of.options, change_data_feed=True), empty_on_error=True)


def feed(folder: Path, start: int = 0) -> dict[int, list[tuple[Row, int]]]:
    """The rows that came (1) and went (-1), by version."""
    found = pa.table(DeltaTable(folder / "published").load_cdf(starting_version=start).read_all())
    changes: dict[int, list[tuple[Row, int]]] = {}
    for row in found.to_pylist():
        assert row["_change_type"] in ("insert", "delete")
        values = (row["k"], row["name"], row["price"], None if row["tags"] is None else tuple(row["tags"]))
        diff = 1 if row["_change_type"] == "insert" else -1
        changes.setdefault(row["_commit_version"], []).append((values, diff))
    return changes


def check(folder: Path, at: dict[int, Counter[Row]], rebuilt: set[int]) -> None:
    """`at`: the view at each time. `rebuilt`: the times at which all contents were written anew."""
    changes, folded = feed(folder), Counter[Row]()
    shown = Counter[Row]()
    for version, time in times_of_versions(folder).items():
        for row, diff in changes.pop(version, []):
            folded[row] += diff
        assert all(count >= 0 for count in folded.values()), f"version {version}"
        folded += Counter()
        assert folded == at[time], f"version {version}, time {time}"
        assert contents(folder, version) == at[time], f"version {version}, time {time}"
        if time not in rebuilt:
            assert len(feed_of(folder, version)) == ((at[time] - shown) + (shown - at[time])).total(), version
        shown = at[time]
    assert changes == {}


def feed_of(folder: Path, version: int) -> list[dict[str, Any]]:
    table = DeltaTable(folder / "published")
    found = table.load_cdf(starting_version=version, ending_version=version).read_all()
    return list(pa.table(found).to_pylist())


@pytest.mark.parametrize("seed", range(10))
def test_the_feed_is_what_has_changed(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random histories: rows that are there several times, errors, compaction of the shard, files that divide."""
    view, chance = FailingView(tmp_path, seed), random.Random(seed)
    monkeypatch.setattr(changed_files, "FILES_PER_PREFIX_MAX", chance.choice([1, 3]))
    monkeypatch.setattr(publication, "REBUILD_ROWS", chance.choice([20, 1_000_000]))
    monkeypatch.setattr(publication, "IDLE_MS", chance.choice([0, 5]))
    at, rebuilt, exact = dict(view.at), set[int](), 0
    for number in range(10):
        time = view.step(chance.choice([0, 1, 5, 40])) if number % 3 else view.step_with_errors(5)
        if view.errors and chance.random() < 0.7:
            gone = [(text, view.upper, -count) for text, count in view.errors.items()]
            view.errors.clear()
            view.append([], view.upper + 1, gone)
            time = view.upper - 1
        for each in range(time + 1):
            if each not in at:
                at[each] = Counter() if view.errors else view.at[each]
        if chance.random() < 0.15:
            view.shard.downgrade_since(time)
        published = fed(view, tmp_path, chance.choice([500, 2_500, 1 << 20])).publish(Time(time))
        if published.anew_because or published.is_in_error:
            rebuilt.add(published.time)
        else:
            exact += 1
        at[published.time] = Counter() if published.is_in_error else view.at[published.time]
    assert exact
    check(tmp_path, at, rebuilt)


@pytest.mark.parametrize("seed", range(4))
def test_crash_anywhere(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher dies before or after a commit, or its reply is lost; the next one goes on from what is there."""
    view, chance = View(tmp_path, seed), random.Random(seed)
    replace_files = PublishedTable._replace
    lost = 0

    def sometimes(*arguments: Any, **named: Any) -> None:
        nonlocal lost
        fate = chance.choice(["before", "after", "lost", "lands", "lands"])
        if fate == "before":
            raise Killed
        replace_files(*arguments, **named)
        if fate == "after":
            raise Killed
        if fate == "lost":
            lost += 1
            raise StorageError("the reply was lost")

    monkeypatch.setattr(PublishedTable, "_replace", sometimes)
    for _ in range(12):
        time = view.step(chance.choice([1, 10, 30]))
        for _ in range(3):
            try:
                fed(view, tmp_path, 800).publish(Time(time))
            except Killed:
                continue
            break
    assert lost
    check(tmp_path, view.at, {min(times_of_versions(tmp_path).values())})


def test_another_publisher_between_the_two_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has published the time; the slower one commits no more, and leaves no file."""
    view = View(tmp_path, 1)
    fed(view, tmp_path).publish(Time(view.step(40)))
    time = Time(view.step(20))
    slower = fed(view, tmp_path)
    after = TablePublication._after

    def overtaken(of: TablePublication, table: PublishedTable) -> PublishedTable:
        if of is slower:
            fed(view, tmp_path).publish(time)
        return after(of, table)

    monkeypatch.setattr(TablePublication, "_after", overtaken)
    with pytest.raises(TableMoved):
        slower.publish(time)
    check(tmp_path, view.at, set())
    table = open_table(slower.options)
    assert table is not None
    assert table.time_of(view.shard.shard_id) == time


def test_it_is_switched_on_and_off(tmp_path: Path) -> None:
    """The table is written anew, in one commit, from which on it has a feed."""
    view = View(tmp_path, 2)
    view.publication(tmp_path).publish(Time(view.step(20)))
    first = fed(view, tmp_path).publish(Time(view.step(20)))
    assert first.anew_because == "its change data feed or its partition columns are others"
    version, time = DeltaTable(tmp_path / "published").version(), view.step(5)
    assert fed(view, tmp_path).publish(Time(time)).anew_because == ""
    changed = Counter[Row]()
    for row, diff in (each for rows in feed(tmp_path, version + 1).values() for each in rows):
        changed[row] += diff
    there = view.at[first.time].copy()
    there.update(changed)
    assert +there == view.at[time]
    last = view.step(5)
    assert view.publication(tmp_path).publish(Time(last)).anew_because
    assert contents(tmp_path) == view.at[last]
    with pytest.raises(Exception, match=r"(?i)change data"):
        feed(tmp_path, DeltaTable(tmp_path / "published").version())


def test_a_column_of_the_feed_itself_is_refused(tmp_path: Path) -> None:
    shard = create_or_open(str(tmp_path / "shard"), pa.schema([pa.field("_change_type", pa.string())]), shard_id="u1")
    shard.compare_and_append(None, expected_upper=0, new_upper=1, term=1)
    of = fed(View(tmp_path / "other", 1), tmp_path)
    with pytest.raises(ColumnsNotSupported, match="_change_type"):
        replace(of, shard=shard).publish(Time(0))
    assert not (tmp_path / "published").exists()
