"""Files written by other processes: a put_if_absent, checked against the file before it is committed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.persist.model import COLUMNS, PHYSICAL, batch, contents
from tests.s3_fixtures import Place
from tidemark_persist import (
    Appended,
    InvalidBatch,
    InvalidStagedFile,
    Shard,
    StagedFile,
    UpperMismatch,
    create_or_open,
    write_staged,
)

ROWS = batch([(("a", 1), 5, 1), (("b", 2), 7, 2)])


@pytest.fixture
def shard(place: Place) -> Shard:
    """A shard with upper 5."""
    shard = create_or_open(place.location, COLUMNS, shard_id="s")
    shard.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    return shard


def staged(shard: Shard, rows: object = ROWS) -> StagedFile:
    """Stage the file as a worker does."""
    file = write_staged(shard.location, rows)
    assert file is not None
    return file


def append(shard: Shard, *files: StagedFile) -> Appended | UpperMismatch:
    """From 5 to 9."""
    return shard.compare_and_append(files, expected_upper=5, new_upper=9, term=1)


def test_staged_files_of_several_workers_land_in_one_commit(shard: Shard) -> None:
    """All or nothing, and what the workers said of them survives JSON and pickle."""
    first = StagedFile.from_json(staged(shard).to_json())
    second = pickle.loads(pickle.dumps(staged(shard, batch([(("a", 1), 8, -1)]))))

    assert append(shard, first, second) == Appended(9, 2)
    assert contents(shard.snapshot(8)) == {("b", 2): 2}
    assert (first.rows, first.min_time, first.max_time) == (2, 5, 7)


@pytest.mark.parametrize(
    "rows",
    [
        lambda: ROWS,
        lambda: ROWS.to_batches()[0],
        lambda: ROWS.to_reader(),
        lambda: ROWS.to_batches(),
        lambda: iter(ROWS.to_batches()),
    ],
    ids=["table", "batch", "reader", "batches", "iterator"],
)
def test_staged_rows_may_come_as_table_batch_reader_or_iterator(shard: Shard, rows: Callable[[], object]) -> None:
    """Whatever the worker has at hand."""
    append(shard, staged(shard, rows()))
    assert contents(shard.snapshot(8)) == {("a", 1): 1, ("b", 2): 2}


@pytest.mark.parametrize("rows", [lambda: batch([]), list, lambda: PHYSICAL.empty_table().to_reader()])
def test_no_rows_make_no_file(shard: Shard, place: Place, rows: Callable[[], object]) -> None:
    """An empty partition of a Spark job."""
    assert write_staged(shard.location, rows()) is None
    assert list(place.folder.glob("*.parquet")) == []


def test_staging_many_batches_keeps_bounds_over_all(shard: Shard) -> None:
    """Streamed row group by row group."""
    pieces = [batch([(("a", i), 5 + i % 3, 1)]).to_batches()[0] for i in range(10)]
    file = staged(shard, pieces)

    assert (file.rows, file.min_time, file.max_time) == (10, 5, 7)
    append(shard, file)
    assert contents(shard.snapshot(8)) == {("a", i): 1 for i in range(10)}


def test_staging_rows_that_do_not_fit_fails_in_the_worker(shard: Shard) -> None:
    """The staging fails as early as possible, and leaves no half a file that looks whole."""
    with pytest.raises(InvalidBatch):
        write_staged(shard.location, [ROWS, ROWS.set_column(4, "__diff", pa.nulls(2, pa.int64()))])


def rewritten(table: pa.Table, **options: object) -> Callable[[Path], None]:
    """The file replaced by another that Parquet readers like as well."""
    return lambda path: pq.write_table(table, path, **options)


NO_TIME = ROWS.set_column(3, "__time", pa.array([None, 5], pa.int64()))
WRONG = {
    "missing": (Path.unlink, {}, "does not exist"),
    "shorter than said": (lambda path: path.write_bytes(path.read_bytes()[:-1]), {}, "bytes; its writer recorded"),
    "other schema": (rewritten(ROWS.drop(["v"])), {"size": None}, "has schema"),
    "null times": (rewritten(NO_TIME.select(PHYSICAL.names)), {"size": None}, "NULLs, in __time"),
    "no statistics": (
        rewritten(ROWS.select(PHYSICAL.names), write_statistics=False),
        {"size": None},
        "no statistics",
    ),
    "too old": (lambda path: None, {"staged_ms": 0}, "older than"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_staged_file_that_differs_from_its_description_is_refused(shard: Shard, place: Place, name: str) -> None:
    """delta-rs would commit it; here it is looked at first."""
    spoil, lie, message = WRONG[name]
    file = staged(shard)
    path = place.folder / file.path
    spoil(path)
    if "size" in lie:
        lie = {"size": path.stat().st_size}

    with pytest.raises(InvalidStagedFile, match=message):
        append(shard, replace(file, **lie))
    assert shard.refresh().version == 1


@pytest.mark.parametrize("time", [4, 9])
def test_staged_times_outside_the_append_are_refused_whatever_their_writer_says(shard: Shard, time: int) -> None:
    """The bounds in the footer count, not the claim."""
    file = replace(staged(shard, batch([(("a", 1), time, 1)])), min_time=5, max_time=5)

    with pytest.raises(InvalidStagedFile, match=f"times {time} to {time}, outside"):
        append(shard, file)


def test_staged_file_is_appended_once(shard: Shard) -> None:
    """Neither twice in one commit nor in two: its times are below the upper by then."""
    file = staged(shard)
    with pytest.raises(InvalidStagedFile, match="given twice"):
        append(shard, file, file)
    append(shard, file)
    with pytest.raises(InvalidStagedFile, match="outside"):
        shard.compare_and_append([file], expected_upper=9, new_upper=12, term=1)


def test_staged_files_that_lost_can_be_discarded_and_live_ones_cannot(shard: Shard, place: Place) -> None:
    """After a mismatch the caller still has them; discarding a file that did land does nothing."""
    lost, won = staged(shard), staged(shard)
    append(shard, won)
    assert append(shard, lost) == UpperMismatch(9)
    shard.discard([lost, won])

    assert [path.name for path in place.folder.glob("*.parquet")] == [won.path]
    assert contents(shard.snapshot(8)) == {("a", 1): 1, ("b", 2): 2}
