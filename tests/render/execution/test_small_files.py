"""Small files of shards: a process reads each once for all dataflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark_persist import DIFF, ERROR, TIME, FilePart, Shard, Time, create_or_open, read_part
from tidemark_replica.arrangement.rows.updates import Updates, updates_of
from tidemark_replica.render.task.small_files import FILE_BYTES, SmallFiles

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
TICKS = 4


class Read:
    """A reader that tells how often it was asked."""

    def __init__(self, *names: str) -> None:
        self.names, self.count = names, 0

    def __call__(self, part: FilePart) -> Iterator[Updates]:
        self.count += 1
        for batch in read_part(part, columns=[*self.names, TIME, DIFF, ERROR]):
            yield updates_of(batch.columns)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """Two updates at each time, TICKS times to a file."""
    made = create_or_open(str(tmp_path / "shard"), SCHEMA, shard_id="s")
    for lower in range(0, 3 * TICKS, TICKS):
        times = [time for time in range(lower, lower + TICKS) for _ in range(2)]
        rows = {"a": times, "b": ["x", "y"] * TICKS, TIME: times, DIFF: [1] * len(times)}
        types = {"a": pa.int64(), "b": pa.string(), TIME: pa.int64(), DIFF: pa.int64()}
        made.compare_and_append(
            pa.table(rows, schema=pa.schema(types)), expected_upper=lower, new_upper=lower + TICKS, term=1
        )
    return made


def rows(files: SmallFiles, parts: list[FilePart], read: Read) -> list[tuple[object, ...]]:
    """The rows of the parts, in any order."""
    found = [batch.to_pydict() for part in parts for batch in files.updates(part, read.names, read)]
    return sorted(row for columns in found for row in zip(*columns.values(), strict=True))


def expected(lower: int, upper: int) -> list[tuple[object, ...]]:
    return [(time, text, time, 1, None) for time in range(lower, upper) for text in "xy"]


def test_agree_a_cached_file_equals_the_file(shard: Shard) -> None:
    """For every range of times, asked twice and in any order, as without keeping anything."""
    files, read = SmallFiles(), Read("a", "b")
    for lower in range(3 * TICKS):
        for upper in range(lower + 1, 3 * TICKS + 1):
            assert rows(files, shard.listen(lower, upper), read) == expected(lower, upper)
    assert read.count == 3


def test_a_file_is_read_once_for_those_that_want_the_same_columns(shard: Shard) -> None:
    """Others read it anew. The rows outlive the file."""
    files, read, other = SmallFiles(), Read("a", "b"), Read("b")
    (part,) = shard.listen(0, TICKS)
    assert rows(files, [part], read) == expected(0, TICKS)
    assert rows(files, [part], other) == sorted((text, time, 1, None) for _, text, time, _, _ in expected(0, TICKS))
    (Path(part.location) / part.path).unlink()
    assert rows(files, [part], read) == expected(0, TICKS)
    assert (read.count, other.count) == (1, 1)


def test_the_cache_of_small_files_is_bounded(shard: Shard) -> None:
    """The least recently used goes; what does not fit at all is not kept, and read all the same."""
    parts = shard.listen(0, 3 * TICKS)
    measured = Read("a", "b")
    size = max(int(batch.get_total_buffer_size()) for part in parts for batch in measured(part))
    files, read = SmallFiles(limit_bytes=2 * size + size // 2), Read("a", "b")
    assert rows(files, parts, read) == expected(0, 3 * TICKS)
    assert rows(files, parts[1:], read) == expected(TICKS, 3 * TICKS)
    assert read.count == 3
    assert rows(files, parts[:1], read) == expected(0, TICKS)
    assert read.count == 4
    nothing, again = SmallFiles(limit_bytes=0), Read("a", "b")
    for _ in range(2):
        assert rows(nothing, parts, again) == expected(0, 3 * TICKS)
    assert again.count == 6


def test_a_large_file_is_read_for_each(shard: Shard) -> None:
    """Only the part that is asked for."""
    files, asked = SmallFiles(), list[FilePart]()

    def read(part: FilePart) -> Iterator[Updates]:
        asked.append(part)
        yield from Read("a")(part)

    (part,) = shard.listen(1, 2)
    large = replace(part, size=FILE_BYTES + 1)
    for _ in range(2):
        assert sum(batch.num_rows for batch in files.updates(large, ("a",), read)) == 2
    assert asked == [large, large]


def test_a_part_without_updates_in_its_times_gives_none(shard: Shard) -> None:
    """Neither when the file is read nor when it is known."""
    files, read = SmallFiles(), Read("a")
    (part,) = shard.listen(0, TICKS)
    empty = replace(part, lower=Time(TICKS), upper=Time(2 * TICKS))
    assert [list(files.updates(empty, ("a",), read)) for _ in range(2)] == [[], []]
