"""Table functions against a row-by-row model: values, places, errors, and output of any size in bounded pieces."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import contents
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.updates import Updates, make_updates
from tidemark_replica.arrangement.step import BatchWriter, StepContext, StepId
from tidemark_replica.kernels import flat_map as kernel
from tidemark_replica.kernels.flat_map import FlatMapSpec, chunks, flat_map

ILLEGAL, TOO_MANY = '{"code":"illegal"}', '{"code":"too many"}'
EXPLODE = FlatMapSpec("explode", (1,), (0, pa.list_(pa.int64())), pa.int64(), False, False, ILLEGAL, TOO_MANY, 100)
SEQUENCE = replace(EXPLODE, function="sequence", arguments=(0, 1, 2), copied_columns=(0, 1, 2))
INT64 = pa.int64()
LEAST, MOST = -(2**63), 2**63 - 1


def context(folder: Path, chunk_rows: int) -> StepContext:
    return StepContext(5, 9, False, {}, BatchCache(folder), BatchWriter(folder, StepId("s")), chunk_rows=chunk_rows)


def arrays(rows: list) -> Updates:
    """(key, array) at times 5, 6, ... with diffs 1, -2, 3, ..."""
    numbers = np.arange(len(rows))
    columns = [pa.array([k for k, _ in rows], pa.int32()), pa.array([a for _, a in rows], pa.list_(pa.int64()))]
    return make_updates(columns, 5 + numbers % 4, np.where(numbers % 2, -1, 1) * (1 + numbers))


def steps(rows: list, type: pa.DataType = INT64) -> Updates:
    columns = [pa.array([row[i] for row in rows], type) for i in range(3)]
    return make_updates(columns, np.full(len(rows), 5), np.ones(len(rows), np.int64))


def values(spec: FlatMapSpec, updates: Updates, folder: Path) -> list:
    """The last column of the output, row by row; errors as their text."""
    made = []
    for batch in flat_map(context(folder, 3), spec, [updates]):
        assert batch.num_rows <= 3 or batch.column(batch.num_columns - 1).null_count < batch.num_rows
        error = batch.column(batch.num_columns - 1).to_pylist()
        made += [e or v for e, v in zip(error, batch.column(batch.num_columns - 4).to_pylist(), strict=True)]
    return made


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("with_position", [False, True])
@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_every_element_stands_beside_its_row(tmp_path: Path, chunk_rows: int, with_position: bool, outer: bool) -> None:
    """With the row's time and diff, whatever the size of the pieces; also of a slice with lists under its NULLs."""
    rows = [(9, [0]), (1, [7, 8]), (2, []), (3, None), (4, [None]), (None, list(range(7)))]
    batch = arrays(rows).slice(1)
    spec = replace(EXPLODE, with_position=with_position, outer=outer)
    expected: dict = {}
    for (key, array), time, diff in zip(rows[1:], [6, 7, 8, 5, 6], [-2, 3, -4, 5, -6], strict=True):
        found = list(enumerate(array or [])) or ([(None, None)] if outer else [])
        for place, value in found:
            row = (key, None, place, value) if with_position else (key, None, value)
            expected[(row, None, time)] = diff

    batches = list(flat_map(context(tmp_path, chunk_rows), spec, [batch]))

    assert contents(batches) == expected
    assert max(b.num_rows for b in batches) <= chunk_rows


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [
        (1, 4, 1, [1, 2, 3, 4]),
        (1, 4, 2, [1, 3]),
        (4, 1, -2, [4, 2]),
        (3, 3, 0, [3]),
        (3, 3, -5, [3]),
        (1, 4, 0, [ILLEGAL]),
        (1, 4, -1, [ILLEGAL]),
        (4, 1, 1, [ILLEGAL]),
        (None, 4, 1, []),
        (1, None, 0, []),
        (1, 4, None, []),
        (0, 99, 1, list(range(100))),
        (0, 100, 1, [TOO_MANY]),
        (LEAST, MOST, 1, [TOO_MANY]),
        (MOST, LEAST, -1, [TOO_MANY]),
        (LEAST, MOST, MOST, [LEAST, -1, MOST - 1]),
        (MOST, LEAST, LEAST, [MOST, -1]),
        (MOST - 1, MOST, 5, [MOST - 1]),
    ],
)
def test_a_sequence_goes_from_start_to_stop(tmp_path: Path, start: int, stop: int, step: int, expected: list) -> None:
    """At the edges of 64 bits too; what leads away from its stop, or is too long, is an error row."""
    assert values(SEQUENCE, steps([(start, stop, step)]), tmp_path) == expected


def test_a_sequence_without_a_step_goes_towards_its_stop(tmp_path: Path) -> None:
    """Up or down by one; narrow integers and dates keep their type."""
    spec = replace(SEQUENCE, arguments=(0, 1), copied_columns=(0, 1, 2), produced=pa.date32())
    batch = steps([(2, 4, 0), (4, 2, 0), (7, 7, 0)], pa.date32())

    made = [b.column(3) for b in flat_map(context(tmp_path, 100), spec, [batch])]

    assert [v for c in made for v in c.cast(pa.int32()).to_pylist()] == [2, 3, 4, 4, 3, 2, 7]


def test_an_outer_function_has_a_row_for_nothing_and_none_for_an_error(tmp_path: Path) -> None:
    """NULL arguments give NULL; a failure is one error row, not an error and a NULL."""
    spec = replace(SEQUENCE, outer=True)

    assert values(spec, steps([(None, 1, 1), (1, 2, -1), (1, 2, 1)]), tmp_path) == [ILLEGAL, None, 1, 2]


def test_errors_of_the_input_pass_through(tmp_path: Path) -> None:
    """With NULLs of the output's types."""
    column = [pa.nulls(1, pa.int32()), pa.nulls(1, pa.list_(pa.int64()))]
    errs = make_updates(column, np.array([5]), np.array([3]), pa.array(["broken"]))
    spec = replace(EXPLODE, with_position=True)

    assert contents(flat_map(context(tmp_path, 3), spec, [errs])) == {((None, None, None, None), "broken", 5): 3}


def test_a_row_that_becomes_two_thousand_million_comes_in_pieces(tmp_path: Path) -> None:
    """The consumer takes a piece at a time and may stop; nothing of the size of the whole is ever made."""
    spec = replace(SEQUENCE, most=2**31)
    batch = steps([(1, 2**31 - 1, 1), (5, 5, 1)])

    pieces = list(islice(flat_map(context(tmp_path, 1000), spec, [batch]), 3))

    assert [p.num_rows for p in pieces] == [1000] * 3
    assert pieces[2].column(3)[999].as_py() == 3000


def test_wide_rows_are_copied_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand copies of a row of 1 MB are not made at once, nor are those of its light neighbours held back."""
    monkeypatch.setattr(kernel, "CHUNK_BYTES", 10_000_000)
    counts, sizes = np.array([5, 0, 1000, 3000]), np.array([1, 1, 1_000_000, 10])

    made = list(chunks(counts, sizes, 2000))

    rows, places = np.concatenate([r for r, _ in made]), np.concatenate([p for _, p in made])
    assert rows.tolist() == np.repeat([0, 2, 3], [5, 1000, 3000]).tolist()
    assert places.tolist() == [*range(5), *range(1000), *range(3000)]
    assert max(sizes[r].sum() for r, _ in made) <= 11_000_000
    assert len(made) < 110


@pytest.mark.parametrize("iterations", [(4,), (4, 9)])
def test_inside_a_loop_the_iterations_stay_the_last_columns(iterations: tuple[int, ...], tmp_path: Path) -> None:
    """A recursion's streams carry them behind everything else."""
    batch = arrays([(1, [7, 8])])
    carried = [pa.array([i]) for i in iterations]
    with_iterations = make_updates([*batch.columns[:2], *carried], np.array([5]), np.array([1]))

    spec = replace(EXPLODE, carried=len(iterations))
    made = contents(flat_map(context(tmp_path, 9), spec, [with_iterations]))

    assert made == {((1, None, value, *iterations), None, 5): 1 for value in (7, 8)}
