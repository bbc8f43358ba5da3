"""The difference by which a table goes on after a gap is copied beside the ticks of the others, bound at one time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.delta.copied_tables import FILES, Copied, Gapped, Gate, ids
from tests.storage.delta.delta_tables import bound_versions, ingester, spec_of, tick
from tests.storage.delta.test_delta_views import DIVISION, SCHEMA, View, counted
from tests.storage.dying_appends import die_after
from tests.storage.ingestion_samples import contents, oks
from tests.waiting import until
from tidemark_persist import StorageError, open_shard
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_replica.storage.delta import changes, pieces
from tidemark_replica.storage.ingester import Ingester

GAPS = ["replaced", "vacuumed", "cleaned"]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Open, until a test closes it."""
    gate = Gate(monkeypatch)
    gate.let(3 * FILES)
    yield gate
    gate.open()


def closed(gate: Gate) -> int:
    """The number of files that came to the gate so far; the next one waits."""
    while gate.passed.acquire(blocking=False):
        pass
    return gate.reached


def check_contents(gapped: Gapped) -> None:
    """The table has its contents of before until it has those of a version that was read, at one time: no hole."""
    after = gapped.rows()
    assert after != gapped.before
    first = open_shard(f"{gapped.root}/big").state().since
    found = [oks(gapped.root, "big", at) for at in range(first, gapped.upper("big"), 50)]
    assert [rows for rows in found if rows not in (gapped.before, after)] == []
    assert (found[0], oks(gapped.root, "big")) == (gapped.before, after)


def test_the_other_tables_tick_while_a_difference_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """Readers have the contents of before, and see the progress."""
    gapped = Gapped(tmp_path, monkeypatch)
    monkeypatch.setattr(pieces, "ACTIVITY_SECONDS", 0.0)
    version, upper, percents, begun = Table(gapped.big).version(), gapped.upper("big"), [], closed(gate)
    for n in range(FILES):
        gapped.ticks()
        until(lambda n=n: gate.reached == begun + n + 1)  # type: ignore[misc]
        write_deltalake(gapped.big, ids(2000 + n), mode="append")
        gapped.ticks()
        source = gapped.one._source
        assert (gapped.upper("small"), gapped.upper("big")) == (gapped.now + 1, upper)
        assert oks(tmp_path, "big") == gapped.before
        assert (source.stop_reasons(), list(source.unbound_tables()), source.progress()["big"].behind) == (
            {},
            ["big"],
            None,
        )
        assert "TableReplaced: table big: " in source.warning()
        assert source.warning().endswith("; the newest version is copied")
        percents.append(gapped.percent())
        assert f"reads table big up to version {version}: {percents[-1]}% of" in source.activity()
        gate.let(1)
    assert percents == sorted({n for n in percents if n is not None and n < 100})
    gate.open()
    gapped.settles()

    assert bound_versions(tmp_path, "big")[gapped.now] == version
    assert len(oks(tmp_path, "big", gapped.now)) == 2 * FILES
    assert oks(tmp_path, "big", upper - 1) == gapped.before
    gapped.ticks()
    assert oks(tmp_path, "big") == gapped.rows()
    assert (gapped.percent(), gapped.one._source.warning()) == (None, "")


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("died_after", range(1, 7))
def test_crash_around_the_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_after: int, gap: str) -> None:
    """Before and after each append of the tick that binds the difference; then upstream goes on."""
    gapped = Gapped(tmp_path, monkeypatch, gap)

    def goes_on() -> None:
        gapped.ticks()
        gapped.settles()
        for _ in range(3):
            gapped.ticks()

    with monkeypatch.context() as dying:
        die_after(dying, died_after)
        with pytest.raises(KeyboardInterrupt):
            goes_on()
    gapped.dies()
    goes_on()
    check_contents(gapped)
    write_deltalake(gapped.big, ids(3000), mode="append")
    gapped.ticks()
    assert oks(tmp_path, "big") == gapped.rows()


@pytest.mark.parametrize("moment", ["before the binding", "after the binding", "before the rows"])
def test_a_source_that_fails_at_the_binding_keeps_the_copy_until_the_shard_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, moment: str
) -> None:
    gapped, append, failing = Gapped(tmp_path, monkeypatch), Ingester._append, [moment]
    begun = gate.reached
    gate.open()

    def fails(self: Ingester, shard: Any, data: Any, lower: int, *more: Any) -> None:
        of_binding = shard.location.endswith("remap") and data is not None
        if failing and (
            (of_binding and moment == "before the binding")
            or (shard.location.endswith("big") and moment == "before the rows")
        ):
            failing.clear()
            raise StorageError("away")
        append(self, shard, data, lower, *more)
        if failing and of_binding and moment == "after the binding":
            failing.clear()
            raise StorageError("away")

    monkeypatch.setattr(Ingester, "_append", fails)
    with pytest.raises(StorageError):
        gapped.ticks_on()
    assert gate.reached == begun + FILES
    gapped.again()
    gapped.settles()

    assert gate.reached == begun + FILES * (2 if moment == "before the rows" else 1)
    check_contents(gapped)
    gapped.dies()
    gapped.ticks()
    check_contents(gapped)


def test_a_version_that_vacuum_takes_meanwhile_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """The table goes on with the newest one; nothing stays of the first try."""
    gapped = Gapped(tmp_path, monkeypatch)
    begun, before = closed(gate), set(gapped.staged())
    gapped.ticks()
    gate.let(2)
    until(lambda: gate.reached == begun + 3)
    Table(gapped.big).optimize.compact()
    gapped.vacuum()
    gate.open()
    until(lambda: (copy := gapped.copies.find("big")) is None or copy.has_ended)
    gapped.ticks()
    assert "VersionGone: table big: file" in gapped.one._source.stop_reasons()["big"]
    until(lambda: set(gapped.staged()) == before)
    gapped.settles()

    assert bound_versions(tmp_path, "big")[gapped.now] == Table(gapped.big).version()
    check_contents(gapped)


@pytest.mark.parametrize("edit", ["another table", "stop", "removed"])
def test_edits_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, edit: str) -> None:
    """An edit of another table lets the copy go on. One that ends it leaves no file of it."""
    gapped = Gapped(tmp_path, monkeypatch)
    begun, before = closed(gate), set(gapped.staged())
    gapped.ticks()
    until(lambda: gate.reached == begun + 1)
    small, big = gapped.spec.tables
    if edit == "another table":
        write_deltalake(str(tmp_path / "up" / "late"), ids(7))
        gapped.again(spec_of(small, big, DeltaTable("late", str(tmp_path / "up" / "late"))))
        gapped.settles("late")  # first versions do not wait for differences
        assert (oks(tmp_path, "late"), oks(tmp_path, "big")) == ([(7,)], gapped.before)
        gate.open()
        gapped.settles()
        assert gate.reached == begun + FILES
        check_contents(gapped)
        return
    gapped.again(spec_of(small, replace(big, on_gap="stop")) if edit == "stop" else gapped.small_spec)
    gate.open()
    until(lambda: not gapped.copies.writes(f"{tmp_path}/big"))
    gapped.ticks()
    assert set(gapped.staged()) == before
    assert oks(tmp_path, "big") == gapped.before
    if edit == "stop":
        assert "TableReplaced" in gapped.one._source.stop_reasons()["big"]
        gapped.again(gapped.spec)
        gapped.settles()
        check_contents(gapped)


def test_a_difference_that_was_bound_is_copied_though_gaps_stop_the_table_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between the binding and the rows."""
    gapped = Gapped(tmp_path, monkeypatch)
    append = Ingester._append

    def dies(self: Ingester, shard: Any, data: Any, *more: Any) -> None:
        if shard.location.endswith("big"):
            raise KeyboardInterrupt
        append(self, shard, data, *more)

    with monkeypatch.context() as dying:
        dying.setattr(Ingester, "_append", dies)
        with pytest.raises(KeyboardInterrupt):
            gapped.settles()
    small, big = gapped.spec.tables
    gapped.spec = spec_of(small, replace(big, on_gap="stop"))
    gapped.dies()
    assert list(gapped.one._source.unbound_tables()) == ["big"]
    gapped.settles()
    check_contents(gapped)


def test_a_copy_of_a_difference_to_other_contents_is_not_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """An append came through after all, of which the ingester had heard that it failed."""
    gapped = Gapped(tmp_path, monkeypatch)
    closed(gate)
    gapped.ticks()
    gate.open()
    until(lambda: (copy := gapped.copies.find("big")) is not None and copy.is_whole)
    begun, before = gate.reached, set(gapped.staged())
    ((_, shard),) = [each for each in gapped.one.table_shards() if each[1].location.endswith("big")]
    upper = Time(shard.state().upper)
    late = pa.table({"id": [5000], "__time": [int(upper)], "__diff": [1]})
    shard.compare_and_append(late, expected_upper=upper, new_upper=Time(upper + 1), term=gapped.one._term)
    gapped.before = oks(tmp_path, "big")
    gapped.settles()

    assert gate.reached == begun + FILES
    assert oks(tmp_path, "big") == gapped.rows()
    assert len(before - set(gapped.staged())) == 1  # that of the first difference


def test_a_table_whose_files_came_back_goes_on_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    gapped = Gapped(tmp_path, monkeypatch, "saved")
    begun = closed(gate)
    gapped.ticks()
    until(lambda: gate.reached == begun + 1)
    shutil.rmtree(gapped.big)
    shutil.copytree(tmp_path / "saved", gapped.big)
    write_deltalake(gapped.big, ids(4000), mode="append")
    gapped.again()
    gate.open()
    gapped.ticks()
    gapped.ticks()
    assert gapped.copies.find("big") is None
    assert oks(tmp_path, "big") == gapped.rows()


def test_a_difference_that_violates_the_key_is_not_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contents stay, and the table goes on with a later version that keeps the key."""
    gapped = Gapped(tmp_path, monkeypatch, primary_key=("id",))
    write_deltalake(gapped.big, ids(2, 2), mode="append")
    before = set(gapped.staged())
    until(lambda: [gapped.ticks(), "KeyViolated" in gapped.one._source.stop_reasons().get("big", "")][1])
    assert oks(tmp_path, "big") == gapped.before
    until(lambda: set(gapped.staged()) == before)
    for _ in range(2):
        gapped.again()
        until(lambda: [gapped.ticks(), "KeyViolated" in gapped.one._source.stop_reasons().get("big", "")][1])
    Table(gapped.big).delete("id = 2")
    gapped.again()
    gapped.settles()
    check_contents(gapped)


def test_versions_that_violate_the_key_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """The version of the tick, and those that were tried in its place."""
    gapped = Gapped(tmp_path, monkeypatch, "violating", primary_key=("id",))
    gate.open()
    read = list[int]()
    for step in range(12):
        if step in (0, 4):
            write_deltalake(gapped.big, ids(2), mode="append")
        gapped.again()
        until(lambda: [gapped.ticks(), "KeyViolated" in gapped.one._source.stop_reasons().get("big", "")][1])
        read.append(gate.reached)
    assert read[1] < read[4]
    assert (read[2], read[6]) == (read[3], read[-1])
    assert oks(tmp_path, "big") == gapped.before


@pytest.mark.parametrize("twice_bytes", [-1, 1 << 20])
def test_errors_of_a_view_go_though_a_table_was_bound_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twice_bytes: int
) -> None:
    """The process died after that binding, and the version was gone afterwards."""
    monkeypatch.setattr(changes, "TWICE_BYTES", twice_bytes)
    path, append = str(tmp_path / "up"), Ingester._append
    view = View(Path(path), 5)
    while (None, None, DIVISION) not in {row for row, count in view.rows.items() if count}:
        view.step()
    spec = spec_of(DeltaTable("t", path, on_gap="resnapshot"))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 100)
    shutil.rmtree(path)
    write_deltalake(path, pa.table({"id": [1], "name": ["a"]}, SCHEMA))

    def dies(self: Ingester, shard: Any, data: Any, *more: Any) -> None:
        if shard.location.endswith("t"):
            raise KeyboardInterrupt
        append(self, shard, data, *more)

    with monkeypatch.context() as dying:
        dying.setattr(Ingester, "_append", dies)
        with pytest.raises(KeyboardInterrupt):
            tick(one, 300)
    write_deltalake(path, pa.table({"id": [1, 2], "name": ["a", "b"]}, SCHEMA), mode="overwrite")
    Table(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    one = ingester(tmp_path, spec)
    one.recover()
    for at in (400, 500):
        tick(one, at)

    assert one._source.stop_reasons() == {}
    assert counted(contents(tmp_path, "t")) == {(1, "a", None): 1, (2, "b", None): 1}


def test_several_differences_are_copied_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """The one with the least to read first; a store that fails now and then costs one of them another reading."""
    gapped = Gapped(tmp_path, monkeypatch)
    shutil.rmtree(gapped.small)
    write_deltalake(gapped.small, ids(*range(50)))
    small = replace(gapped.spec.tables[0], on_gap="resnapshot")
    begun = closed(gate)
    gapped.again(spec_of(small, gapped.spec.tables[1]))
    gapped.settles("small")
    assert len(oks(tmp_path, "small")) == 50
    assert gate.reached <= begun + 1
    gate.open()
    gapped.settles()
    check_contents(gapped)


def test_a_process_that_ends_in_the_middle_leaves_the_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """Nothing is bound (as with `suspend`); the next process begins with the version that is the newest then."""
    gapped = Gapped(tmp_path, monkeypatch)
    begun, before = closed(gate), set(gapped.staged())
    gapped.ticks()
    until(lambda: gate.reached == begun + 1)
    copies = gapped.copies
    gapped.dies()
    write_deltalake(gapped.big, ids(6000), mode="append")
    gate.open()
    until(lambda: not copies.is_busy())
    assert set(gapped.staged()) == before
    gapped.settles()
    assert bound_versions(tmp_path, "big")[gapped.now] == Table(gapped.big).version()
    check_contents(gapped)


def test_a_source_of_one_tick_stands_still_for_small_differences_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick waits for its copies for as long as WAIT_SECONDS says: small tables go on at once."""
    gapped: Copied = Gapped(tmp_path, monkeypatch)
    monkeypatch.setattr("tidemark_replica.storage.delta.source.WAIT_SECONDS", 60.0)
    gapped.ticks()
    assert "big" not in gapped.one._source.unbound_tables()
