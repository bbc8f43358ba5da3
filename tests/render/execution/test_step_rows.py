"""The end of a step of a bounded number of rows: exact by time, whatever times a file has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark_persist import FilePart, Time, create_or_open
from tidemark_replica.render.execution import step_rows
from tidemark_replica.render.execution.step_rows import StepRows, TimedFile, counted

SCHEMA = pa.schema([("n", pa.int64())])


def shard_of(folder: Path, files: Sequence[Sequence[int]]) -> list[FilePart]:
    """The parts of a shard with files of rows at these times, which ascend from file to file."""
    shard = create_or_open(str(folder), SCHEMA, shard_id="t")
    upper = 0
    for times in files:
        rows = pa.table({"n": [0] * len(times), "__time": list(times), "__diff": [1] * len(times)})
        end = max(times) + 1
        shard.compare_and_append(rows, expected_upper=upper, new_upper=end, term=1)
        upper = end
    return shard.listen(1, upper)


def timed(parts: Sequence[FilePart], lower: int) -> list[TimedFile]:
    return [TimedFile.of_part(p) for p in parts if p.upper > lower]


def test_a_step_ends_before_the_first_time_that_it_cannot_take(tmp_path: Path) -> None:
    """Quiet times cost nothing, so they belong to the step before."""
    files = timed(shard_of(tmp_path / "t", [[5] * 3 + [6] * 2 + [80] * 4, [90] * 9]), 1)
    rows = StepRows()
    assert rows.narrowed(files, 1, 91, 5) == 80
    assert rows.narrowed(files, 1, 91, 8) == 80
    assert rows.narrowed(files, 1, 91, 9) == 90
    assert rows.narrowed(files, 1, 91, 18) == 91
    assert rows.narrowed(files, 1, 70, 5) == 70


def test_a_step_has_at_least_one_time(tmp_path: Path) -> None:
    """However many rows that time has."""
    files = timed(shard_of(tmp_path / "t", [[5] * 30, [7] * 30]), 1)
    assert StepRows().narrowed(files, 1, 8, 1) == 7


def test_times_with_many_rows_are_found(tmp_path: Path) -> None:
    """Over all files; times before the lower one count as that."""
    files = timed(shard_of(tmp_path / "t", [[5] * 3 + [6] * 2 + [80] * 4, [90] * 9]), 1)
    files += timed(shard_of(tmp_path / "u", [[6] * 3, [80] * 2]), 1)
    rows = StepRows()
    found = {least: rows.heavy(files, 1, 91, least) for least in (1, 6, 7, 10)}
    assert found == {1: [(5, 3), (6, 5), (80, 6), (90, 9)], 6: [(80, 6), (90, 9)], 7: [(90, 9)], 10: []}
    assert rows.heavy(files, 1, 80, 6) == []
    assert rows.heavy(files, 6, 91, 8) == [(6, 8), (90, 9)]


def test_the_last_time_of_a_file_counts_its_own_rows_also_where_no_step_read_the_others(tmp_path: Path) -> None:
    """A hydration did, which counts nothing by time."""
    parts = shard_of(tmp_path / "t", [[5] * 200 + [6]])
    (rest,) = timed([replace(parts[0], lower=Time(6), rows=101)], 6)
    rows = StepRows()
    assert rows.about([rest], 7) is None
    assert rows.heavy([rest], 6, 7, 100) == []
    assert rows.heavy([rest], 6, 7, 1) == [(6, 1)]
    assert rows.about([rest], 7) == 1


def test_rows_of_a_step_are_known_where_few_are_of_files_with_other_times(tmp_path: Path) -> None:
    """The cost of such a step is then learned for about its size."""
    whole = timed(shard_of(tmp_path / "t", [[5] * 30, [6] * 30]), 1)
    parts = shard_of(tmp_path / "u", [[5] * 20 + [6]])
    (rest,) = timed([replace(parts[0], lower=Time(6), rows=11)], 6)
    rows = StepRows()
    assert (rows.about(whole, 7), rows.about([*whole, rest], 7)) == (60, 81)
    assert (rows.about(whole[1:], 7), rows.about([whole[1], rest], 7)) == (30, 51)
    assert rows.about([rest], 7) is None
    assert rows.about(whole, 6) == 30
    assert rows.about([], 7) == 0


def test_counts_are_forgotten_after_the_last_step_that_reads_their_file(tmp_path: Path) -> None:
    """Also where only heavy times are searched."""
    rows = StepRows()
    for time in range(1, 21, 2):
        files = timed(shard_of(tmp_path / f"t{time}", [[time, time + 1]]), 1)
        assert rows.heavy(files, time, time + 2, 1) == [(time, 1), (time + 1, 1)]
    assert len(rows._known) == 1


def test_contents_beyond_the_bound_are_a_step_and_no_file_is_read_for_it() -> None:
    """A hydration reads them at its as_of: what has come since cannot make its step narrower."""

    def read(lower: int) -> list[Any]:
        raise AssertionError(f"times from {lower} on were read")

    contents = TimedFile("contents", 0, 11, 100, read)
    merged = TimedFile("merged", 0, 20, 100, read)
    assert StepRows().narrowed([contents, merged], 10, 20, 50) == 11


def test_the_bound_is_on_the_sum_of_all_inputs(tmp_path: Path) -> None:
    """Each of which alone would fit."""
    one, other = (shard_of(tmp_path / name, [[5, 5], [6, 6], [7, 7]]) for name in ("one", "other"))
    rows = StepRows()
    assert rows.narrowed(timed(one, 1), 1, 8, 6) == 8
    assert rows.narrowed(timed([*one, *other], 1), 1, 8, 6) == 6


def test_a_file_of_many_times_is_read_once_and_forgotten_after_its_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counts serve all steps; files that are not reached yet are not read."""
    parts = shard_of(tmp_path / "t", [[1, 2, 3, 4], [5, 6, 7, 8]])
    read: Counter[str] = Counter()

    def counting(times: Iterable[Any]) -> step_rows.Counts:
        read["files"] += 1
        return counted(times)

    monkeypatch.setattr(step_rows, "counted", counting)
    rows = StepRows()
    ends, lower = [], 1
    while lower < 9:
        files = [TimedFile.of_part(p) for p in parts if p.upper > lower]
        files = [TimedFile(f.name, max(f.lower, lower), f.upper, f.rows, f.read) for f in files]
        lower = rows.narrowed(files, lower, 9, 2)
        ends.append(lower)
        assert read["files"] == (1 if lower <= 3 else 2)
    assert ends == [3, 5, 7, 9]
    assert rows.at_most(timed(parts, 8), 9) == 4, "the first file is forgotten; the second is known"


def test_a_file_of_very_many_times_is_counted_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not follow the number of times. A step does not end inside a group, and holds at least one."""
    monkeypatch.setattr(step_rows, "GROUPS_MAX", 10)
    found = counted([np.arange(1000), np.arange(500)])
    assert found.is_grouped
    assert 5 <= len(found.times) <= 10
    assert int(found.rows.sum()) == 1500
    assert found.between(0, 1000) == 1500
    for lower in (0, 17, 999):
        exact = sum(2 if t < 500 else 1 for t in range(lower, 1000))
        assert exact <= found.between(lower, 1000) <= exact + 200


@pytest.mark.parametrize("seed", range(20))
def test_agree_with_a_count_of_all_rows(tmp_path: Path, seed: int) -> None:
    """Random files and bounds: no step is too wide, and none could have had one more time."""
    draw = random.Random(seed)
    first, files = 1, []
    for _ in range(draw.randint(1, 5)):
        last = first + draw.randint(0, 6)
        files.append(sorted(draw.choices(range(first, last + 1), k=draw.randint(1, 12))))
        first = last + 1
    at = Counter(t for file in files for t in file)
    end, parts, rows, lower = first, shard_of(tmp_path / "t", files), StepRows(), 1
    shown = parts[-1].upper
    while lower < shown:
        limit = draw.choice([1, 2, 5, 20])
        now = [TimedFile.of_part(p) for p in parts if p.upper > lower]
        now = [TimedFile(f.name, max(f.lower, lower), f.upper, f.rows, f.read) for f in now]
        upper = rows.narrowed(now, lower, shown, limit)
        times = [t for t in at if lower <= t < upper]
        assert upper > lower
        assert len(times) <= 1 or sum(at[t] for t in times) <= limit
        following = min((t for t in at if t >= upper), default=end)
        assert upper == shown or sum(at[t] for t in at if lower <= t <= following) > limit
        lower = upper
