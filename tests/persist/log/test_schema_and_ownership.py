"""Schemas that a shard accepts, its owner, and locations that hold no shard."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from tests.persist.model import COLUMNS, batch, contents
from tests.s3_fixtures import Place
from tests.waiting import BOUND
from tidemark_persist import (
    DIFF,
    TIME,
    InvalidSchema,
    MaintenancePolicy,
    Shard,
    ShardDeleted,
    ShardMismatch,
    ShardNotFound,
    StorageError,
    create_or_open,
    delete_shard,
    open_shard,
    physical_schema,
)
from tidemark_persist.log import deletion
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import Change
from tidemark_persist.maintenance.maintenance import Vacuum
from tidemark_persist.storage.storage import LOG_DIR, TOMBSTONE, Storage

BUSY = MaintenancePolicy(checkpoint_commits=3, compact_runs=3, vacuum_grace_seconds=0.05)
REFUSED = {
    "reserved name": ([("__time", pa.int64())], "reserved"),
    "any name with two underscores": ([("__mine", pa.int64())], "reserved"),
    "duplicate": ([("a", pa.int64()), ("a", pa.string())], "duplicate"),
    "duplicate but for case": ([("a", pa.int64()), ("A", pa.int64())], "duplicate"),
    "empty name": ([("", pa.int64())], "empty name"),
    "unsigned": ([("a", pa.uint32())], "stores as int32"),
    "nanoseconds": ([("a", pa.timestamp("ns"))], "microseconds"),
    "no type": ([("a", pa.null())], "no type"),
    "interval": ([("a", pa.month_day_nano_interval())], "cannot store"),
    "too wide": ([("a", pa.decimal256(50, 2))], "cannot store"),
    "nested": ([("a", pa.list_(pa.uint8()))], "stores as"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_schema_that_delta_would_change_is_refused(place: Place, name: str) -> None:
    """Nothing is created, and the message names the column."""
    fields, message = REFUSED[name]

    with pytest.raises(InvalidSchema, match=message):
        create_or_open(place.location, pa.schema(fields), shard_id="s")
    assert not place.folder.exists()


UTC_NOW = datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)
TYPES = {
    "bool": (pa.bool_(), True, False),
    "i8": (pa.int8(), -128, 127),
    "i16": (pa.int16(), -1, 1),
    "i32": (pa.int32(), 2**31 - 1, 0),
    "i64": (pa.int64(), -(2**63), 2**63 - 1),
    "f32": (pa.float32(), 0.5, float("inf")),
    "f64": (pa.float64(), -0.0, 1e300),
    "decimal": (pa.decimal128(38, 10), Decimal("1.0000000001"), Decimal("-9.5")),
    "string": (pa.string(), "", "ünïcødé\n"),
    "binary": (pa.binary(), b"", b"\x00\xff"),
    "date": (pa.date32(), date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": (pa.timestamp("us", "UTC"), UTC_NOW, datetime(1969, 1, 1, tzinfo=UTC)),
    "timestamp_ntz": (pa.timestamp("us"), datetime(2024, 1, 1), datetime(1, 1, 1)),
    "list": (pa.list_(pa.int64()), [1, None, 2], []),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1, "y": None}, {"x": None, "y": "q"}),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("b", None)]),
    "deep": (pa.list_(pa.struct([("x", pa.list_(pa.string()))])), [{"x": ["a", "b"]}, None], [{"x": None}]),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_come_back_and_consolidate(place: Place, name: str) -> None:
    """Two values and NULL: inserted twice, one of them taken back, also after a compaction."""
    dtype, one, two = TYPES[name]
    schema = pa.schema([("c", dtype)])
    shard = create_or_open(place.location, schema, shard_id="s")
    for upper, values, diffs in ((1, [one, two, None], [1, 1, 1]), (2, [one, two, None], [1, -1, 1])):
        rows = pa.table({"c": pa.array(values, dtype), TIME: [upper - 1] * 3, DIFF: diffs})
        shard.compare_and_append(rows, expected_upper=upper - 1, new_upper=upper, term=1)
    reopened = create_or_open(place.location, schema, shard_id="s")

    found = reopened.snapshot(1).select(["c", DIFF]).to_pylist()
    expected = [{"c": one, DIFF: 2}, {"c": None, DIFF: 2}]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert reopened.schema.equals(shard.schema)


def test_layout_of_types_does_not_matter_but_values_are_never_converted(place: Place) -> None:
    """Large strings and zoned instants are the types Delta has; the shard's schema says so."""
    schema = pa.schema([("s", pa.large_string()), ("t", pa.timestamp("us", "Europe/Berlin"))])
    shard = create_or_open(place.location, schema, shard_id="s")
    rows = pa.table({"s": ["x"], "t": [UTC_NOW], TIME: [0], DIFF: [1]})
    rows = rows.cast(pa.schema([*schema, (TIME, pa.int64()), (DIFF, pa.int64())]))
    shard.compare_and_append(rows, expected_upper=0, new_upper=1, term=1)

    assert shard.schema == pa.schema([("s", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    assert contents(shard.snapshot(0)) == {("x", UTC_NOW): 1}
    assert create_or_open(place.location, schema, shard_id="s").schema == shard.schema


def test_opening_again_with_another_owner_or_schema_is_refused(place: Place) -> None:
    """Both sides of the disagreement are in the message; the same ones open."""
    location = place.location
    create_or_open(location, COLUMNS, shard_id="mine")

    with pytest.raises(ShardMismatch, match="belongs to shard 'mine', not to 'yours'"):
        create_or_open(location, COLUMNS, shard_id="yours")
    with pytest.raises(ShardMismatch, match="has columns k string, v int64; asked for k string"):
        create_or_open(location, pa.schema([("k", pa.string())]), shard_id="mine")
    assert create_or_open(location, COLUMNS, shard_id="mine").state().version == 0
    assert open_shard(location).shard_id == "mine"


def test_delta_table_that_is_no_shard_is_refused(place: Place) -> None:
    """Somebody's table is not taken over."""
    write_deltalake(place.location, pa.table({"k": ["a"], "v": [1]}))

    with pytest.raises(ShardMismatch, match="is not a shard"):
        create_or_open(place.location, COLUMNS, shard_id="s")
    with pytest.raises(ShardNotFound):
        open_shard(f"{place.location}/nothing")


def test_created_by_many_at_once_is_one_shard(place: Place) -> None:
    """One creates, all open it; with different owners, one gets it."""
    location = place.location

    def create(owner: str) -> str:
        try:
            return create_or_open(location, COLUMNS, shard_id=owner).shard_id
        except ShardMismatch:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        owners = list(pool.map(create, ["a", "b"] * 4))
    assert len(set(owners)) == 2
    assert owners.count("refused") == 4
    assert DeltaTable(location).version() == 0


def test_deleted_shard_stops_its_writers_and_frees_the_location(place: Place) -> None:
    """Nothing is left; a new shard starts from nothing."""
    location = place.location
    shard, other = (create_or_open(location, COLUMNS, shard_id="s") for _ in range(2))
    shard.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    with pytest.raises(ShardMismatch):
        delete_shard(location, "other")
    delete_shard(location, "s")
    delete_shard(location, "s")  # again: nothing to do

    assert place.left() == []
    with pytest.raises(ShardDeleted):
        other.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    assert place.left() == []


def test_a_writer_during_a_deletion_leaves_no_folder_on_the_disk(tmp_path: Path) -> None:
    """Rows, a lease and maintenance that come after the deletion are refused; no folder is made for them."""
    shard, other = (create_or_open(str(tmp_path / "shard"), COLUMNS, shard_id="s") for _ in range(2))
    shard.compare_and_append(batch([(("a", 1), 0, 1)]), expected_upper=0, new_upper=1, term=1)
    due = shard.maintenance_due()
    delete_shard(other.location, "s")

    late: list[Callable[[], object]] = [
        lambda: shard.compare_and_append(batch([(("b", 2), 1, 1)]), expected_upper=1, new_upper=2, term=1),
        lambda: shard.lease(),
        *(partial(shard.run_maintenance, work) for work in due),
    ]
    assert any(isinstance(work, Vacuum) for work in due)
    for write in late:
        with pytest.raises(ShardDeleted):
            write()
    assert list(tmp_path.iterdir()) == []


def test_of_two_deletions_the_slow_one_leaves_the_next_table_alone(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """It has come to the first data file when the other ends, and the location is used again."""
    remove, stands, may = Storage.remove, threading.Event(), threading.Event()

    def slowly(storage: Storage, path: str) -> None:
        if threading.current_thread() is not threading.main_thread() and not stands.is_set():
            stands.set()
            assert may.wait(BOUND)
        remove(storage, path)

    _write(create_or_open(place.location, COLUMNS, shard_id="old"), "a")
    monkeypatch.setattr(Storage, "remove", slowly)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(delete_shard, place.location, "old")
        assert stands.wait(BOUND)
        delete_shard(place.location, "old")
        _write(create_or_open(place.location, COLUMNS, shard_id="new"), "b")
        may.set()
        slow.result(BOUND)

    assert contents(open_shard(place.location).snapshot(2)) == {("b", upper): 1 for upper in range(3)}


def _write(shard: Shard, name: str) -> None:
    for upper in range(3):
        rows = batch([((name, upper), upper, 1)])
        shard.compare_and_append(rows, expected_upper=upper, new_upper=upper + 1, term=1)


def test_a_deletion_that_takes_too_long_is_gone_on_with_by_the_next(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """The caller, who has asked another replica meanwhile, learns when it has ended."""
    _write(create_or_open(place.location, COLUMNS, shard_id="s"), "a")
    with monkeypatch.context() as patch:
        patch.setattr(deletion, "SECONDS_MAX", -1.0)
        with pytest.raises(StorageError, match="delete it again to go on"):
            delete_shard(place.location, "s")
    delete_shard(place.location, "s")
    assert place.left() == []


def test_a_commit_into_a_log_that_is_being_deleted_is_taken_back(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    """The deletion has removed its own entry, and not yet those before: the slot is free, and delta-rs takes it."""
    shard, put, remove = create_or_open(place.location, COLUMNS, shard_id="s"), DeltaLog._put, Storage.remove
    _write(shard, "a")

    def put_during_deletion(log: DeltaLog, change: Change) -> None:
        def remove_and_put(storage: Storage, path: str) -> None:
            if path.startswith(LOG_DIR):
                patch.setattr(Storage, "remove", remove)
                remove(storage, f"{LOG_DIR}/{4:020}.json")
                put(log, change)
            remove(storage, path)

        with monkeypatch.context() as patch:
            patch.setattr(DeltaLog, "_put", put)
            patch.setattr(Storage, "remove", remove_and_put)
            delete_shard(place.location, "s")

    monkeypatch.setattr(DeltaLog, "_put", put_during_deletion)
    with pytest.raises(ShardDeleted):
        shard.compare_and_append(batch([(("a", 3), 3, 1)]), expected_upper=3, new_upper=4, term=1)
    assert [path for path in place.left() if path.is_file()] == []


def test_deletion_and_a_writer_that_does_not_stop(place: Place) -> None:
    """The writer is told that the shard is deleted, whatever it was doing, and no file is left."""
    for round_ in range(10):
        writer, stop = create_or_open(place.location, COLUMNS, shard_id=f"s{round_}", policy=BUSY), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(_write_until_deleted, writer, stop)
            try:
                while writer.state().upper < round_:
                    time.sleep(0.001)
                _delete_until_gone(place.location, f"s{round_}")
                ended.result(BOUND)
            finally:
                stop.set()
        assert [path for path in place.left() if path.is_file()] == [], round_


def _delete_until_gone(location: str, shard_id: str) -> None:
    """Delete the shard; an attempt that takes too long on a busy machine is repeated, as the operator does it."""
    for _ in range(4):
        try:
            return delete_shard(location, shard_id)
        except StorageError as error:
            if "delete it again" not in str(error):
                raise
    raise AssertionError(f"shard {shard_id} is not gone after four deletions")


def _write_until_deleted(shard: Shard, stop: threading.Event) -> None:
    """Append row after row, with maintenance as ingestions do it, until the shard is deleted.

    delta-rs may find half a table while files go; such an error must not last.
    """
    errors: deque[str] = deque(maxlen=3)
    while True:
        upper = shard.state().upper  # an append that failed has not moved it
        assert not stop.is_set(), f"the writer was not told that the shard is deleted; its last errors: {list(errors)}"
        rows = batch([(("a", upper), upper, 1)])
        try:
            shard.compare_and_append(rows, expected_upper=upper, new_upper=upper + 1, term=1)
            for work in shard.maintenance_due():
                shard.run_maintenance(work)
        except ShardDeleted:
            return
        except StorageError as error:
            errors.append(str(error))


@pytest.mark.parametrize("commits_anew", [0, 2, 9])
def test_handle_of_a_deleted_shard_never_touches_the_one_made_again(place: Place, commits_anew: int) -> None:
    """Also when both have the same owner and term: neither reads nor writes, at any version of the new one."""
    location = place.location
    old = create_or_open(location, COLUMNS, shard_id="s")
    for upper in range(3):
        old.compare_and_append(None, expected_upper=upper, new_upper=upper + 1, term=1)
    delete_shard(location, "s")
    new = create_or_open(location, COLUMNS, shard_id="s")
    for upper in range(commits_anew):
        new.compare_and_append(None, expected_upper=upper, new_upper=upper + 1, term=1)

    with pytest.raises(ShardDeleted):
        old.compare_and_append(None, expected_upper=3, new_upper=20, term=1)
    assert new.refresh().upper == commits_anew
    assert new.state() == create_or_open(location, COLUMNS, shard_id="s").state()


def test_crash_in_a_deletion_is_finished_by_the_next_one(place: Place) -> None:
    """With the tombstone there, nobody opens what is half gone; with it gone, nothing is left."""
    location = place.location
    writer = create_or_open(location, COLUMNS, shard_id="s")
    delete_shard(location, "s")
    create_or_open(location, COLUMNS, shard_id="s")
    (place.folder / TOMBSTONE).parent.mkdir(exist_ok=True)
    (place.folder / TOMBSTONE).write_text('{"shard": "s"}')
    (place.folder / "_delta_log" / "00000000000000000000.json").unlink()

    with pytest.raises(ShardDeleted):
        create_or_open(location, COLUMNS, shard_id="s")
    delete_shard(location, "s")
    assert place.left() == []
    assert writer.shard_id == "s"


def test_writer_of_a_shard_being_deleted_is_told(place: Place) -> None:
    """Between the first step and the last, an append is refused as what it is."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    write_term_of_the_dead(shard.location)

    with pytest.raises(ShardDeleted):
        shard.compare_and_append(None, expected_upper=0, new_upper=5, term=9)
    with pytest.raises(ShardDeleted):
        create_or_open(shard.location, COLUMNS, shard_id="s")


def write_term_of_the_dead(location: str) -> None:
    """The first step of a deletion, and then a crash."""
    from tidemark_persist.log.delta_log import DeltaLog
    from tidemark_persist.log.entry import Change
    from tidemark_persist.times import DELETED

    assert DeltaLog(Storage.at(location)).attempt(Change("x", term=DELETED))


def test_columns_changed_by_another_tool_stop_the_handles(place: Place) -> None:
    """A compaction that knows only the old columns would lose the new ones."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    DeltaTable(shard.location).alter.add_columns([Field("extra", PrimitiveType("long"))])

    with pytest.raises(ShardMismatch, match="changed by another tool"):
        shard.refresh()
    with pytest.raises(ShardMismatch, match="extra int64; asked for k string, v int64:"):
        create_or_open(shard.location, COLUMNS, shard_id="s")


def test_user_columns_are_nullable_in_the_table() -> None:
    """Whatever the view promises: an err row has none of them."""
    schema = physical_schema(pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    assert all(field.nullable for field in schema)
