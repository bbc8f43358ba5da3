"""Updates that are left out of a change always cancel; and most of those that cancel are left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from tidemark_persist import DIFF
from tidemark_persist.files.row_hashes import RowHashes
from tidemark_replica.storage.delta.cancellation import SumsWrong, Updates, uncancelled
from tidemark_replica.storage.delta.side_by_side import THREADS, side_by_side

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), (DIFF, pa.int64())])
Row = tuple[int | None, str | None]


def batch(rows: list[tuple[Row, int]], encode: bool = False) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row, _ in rows], SCHEMA.field(i).type) for i in range(2)]
    if encode:
        columns[1] = columns[1].dictionary_encode()
    return pa.RecordBatch.from_arrays([*columns, pa.array([d for _, d in rows], pa.int64())], names=SCHEMA.names)


def part(rows: list[tuple[Row, int]], draw: random.Random) -> Updates:
    """In batches, some of them with dictionaries."""
    rows = draw.sample(rows, len(rows))
    while rows:
        count = draw.randrange(1, 40)
        yield batch(rows[:count], draw.random() < 0.5)
        rows = rows[count:]


def summed(batches: Iterator[pa.RecordBatch]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for each in batches:
        for row in each.to_pylist():
            total[row["id"], row["text"]] += row[DIFF]
    return Counter({row: diff for row, diff in total.items() if diff})


@pytest.mark.parametrize("seed", range(30))
def test_oracle_random_changes(seed: int) -> None:
    """Rows that occur several times, move between files, and change; few sums, which many rows share; huge diffs."""
    draw = random.Random(seed)

    def row() -> Row:
        return draw.choice([None, draw.randrange(200)]), draw.choice([None, "", "a", "b" * draw.randrange(20)])

    before = [row() for _ in range(draw.randrange(400))]
    after = [row() if draw.random() < draw.choice([0.0, 0.05, 1.0]) else each for each in before]
    updates = [(each, -1) for each in before] + [(each, 1) for each in after]
    if seed % 5 == 0:
        huge = row(), row()
        updates += [(huge[0], 1 << 62), (huge[1], -(1 << 62)), (huge[0], -(1 << 61)), (huge[0], -(1 << 61))]
    files = [updates[i :: 1 + seed % 4] for i in range(1 + seed % 4)]

    found = uncancelled(lambda: (part(file, draw) for file in files), ["id", "text"], draw.choice([1, 10_000]))
    assert summed(found) == summed(part(updates, draw))


def test_most_of_what_cancels_is_left_out() -> None:
    draw = random.Random(1)
    rows: list[tuple[Row, int]] = [((i, f"{i % 7}"), sign) for i in range(5000) for sign in (1, -1)]
    changed: list[tuple[Row, int]] = [((i, "new"), 1) for i in range(50)]
    found = uncancelled(lambda: iter([part(rows, draw), part(changed, draw)]), ["id", "text"], 10_000)

    assert 50 <= sum(each.num_rows for each in found) < 500


def test_passes_with_other_rows_are_an_error() -> None:
    """Also where a sum is zero by chance: here by hashes that say nothing."""
    turns = iter([[((1, "a"), 1), ((1, "a"), -1)], [((1, "a"), 1), ((2, "a"), -1)]])
    with pytest.raises(SumsWrong):
        list(uncancelled(lambda: iter([part(next(turns), random.Random(0))]), ["id", "text"], 1 << 20))


def test_a_sum_that_is_zero_by_chance_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second hash, of which the sums are, is the same for all rows; the first one tells."""
    both = RowHashes.hash_pair

    def poor(self: RowHashes, columns: list[pa.Array], rows: int) -> Any:
        one, two = both(self, columns, rows)
        two[:] = 5
        return one, two

    monkeypatch.setattr(RowHashes, "hash_pair", poor)
    rows: list[tuple[Row, int]] = [((i, "a"), 1 if i % 2 else -1) for i in range(1000)]
    with pytest.raises(SumsWrong):
        list(uncancelled(lambda: iter([part(rows, random.Random(0))]), ["id", "text"], 1))


def test_parts_run_side_by_side_and_end_with_the_reader() -> None:
    """Each part in its order. A part that fails, or work that does, ends all; parts that were begun are closed."""
    begun, ended = list[int](), list[int]()

    def numbers(first: int, fails: bool = False) -> Iterator[int]:
        begun.append(first)
        try:
            for i in range(100):
                if fails and i == 50:
                    raise OSError("gone")
                yield first + i
        finally:
            ended.append(first)

    found = list(side_by_side(lambda n: n + 1, (numbers(1000 * i) for i in range(5))))  # type: ignore[arg-type, misc]
    assert sorted(found) == [1000 * i + n + 1 for i in range(5) for n in range(100)]
    assert all([n for n in found if n // 1000 == i] == sorted(n for n in found if n // 1000 == i) for i in range(5))
    assert sorted(ended) == [0, 1000, 2000, 3000, 4000]

    with pytest.raises(OSError, match="gone"):
        list(side_by_side(int, [numbers(0), numbers(1000, fails=True)]))  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda n: 1 // (n - 1003), [numbers(0), numbers(1000)]))  # type: ignore[list-item]
    some = side_by_side(lambda n: n + 1, [numbers(0), numbers(1000), numbers(2000)])  # type: ignore[list-item]
    next(some)
    some.close()  # type: ignore[attr-defined]
    assert len(begun) >= 5 + 2 + 2 + 1
    assert sorted(ended) == sorted(begun)


def test_parts_wait_for_the_reader_and_not_for_each_other() -> None:
    """Few results wait to be taken; a part goes on while the other one is slow."""
    taken, slow = list[int](), Event()

    def numbers(first: int) -> Iterator[int]:
        for i in range(100):
            if first == 0 and i == 50:
                assert slow.wait(60)
            taken.append(first + i)
            yield first + i

    found = side_by_side(lambda n: n or None, [numbers(0), numbers(1000)])  # type: ignore[list-item]
    seen = [next(found) for _ in range(149)]  # 0 is no result
    assert len([n for n in seen if n >= 1000]) == 100
    assert len(taken) <= len(seen) + 2 * THREADS + 1
    slow.set()
    assert sorted([*seen, *found]) == [*range(1, 100), *range(1000, 1100)]
