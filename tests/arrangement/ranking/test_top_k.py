"""Top-k kernels against sorting in Python at every time, in steps of any size; and the rows that they read."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, A, Driver, contents, seeds, updates
from tests.arrangement.ranking.first_rows_runs import CUTS, LAST, random_history, run
from tests.arrangement.value_model import at, first_rows
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines.first_rows_reader import FirstRowsReader, RankedRows
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.ranking.first_rows import LEAST_READ_ROWS
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingStateSpec
from tidemark_replica.kernels.ranking.top_k import TopKSpec, top_k


def random_ranking(rng: np.random.Generator, types: list[pa.DataType]) -> Ranking:
    """A ranking in groups by the first two columns, in any order of the others."""
    order = [
        OrderKey(int(c), bool(rng.integers(2)), bool(rng.integers(2)))
        for c in rng.permutation(np.arange(2, len(types)))[: rng.integers(0, 3)]
    ]
    offset, limit = int(rng.integers(0, 3)), int(rng.integers(1, 4))
    return Ranking(tuple(types), (0, 1), tuple(order), offset, offset + limit)


def expected_output(rows: list[tuple], ranking: Ranking, as_of: int, *, complement: bool = False) -> Counter:
    """From time to time, by how much it changes what is shown."""
    result: Counter = Counter()
    shown: Counter = Counter()
    for time in range(as_of, LAST):
        now = first_rows(at(rows, time), ranking.key, ranking.order, ranking.offset, ranking.end)
        if complement:
            everything: Counter = Counter()
            for row, n in first_rows(at(rows, time), ranking.key, ranking.order, 0, None).items():
                everything[row] += n
            now = Counter({r: everything[r] - now[r] for r in everything} | {"negative": now["negative"]})
        for row in {*now, *shown}:
            key = (tuple([None] * len(ranking.types)), "NEGATIVE_MULTIPLICITY") if row == "negative" else (row, None)
            result[*key, time] += now[row] - shown[row]
        shown = now
    return Counter({k: d for k, d in result.items() if d})


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_split_every_cut_of_a_history_gives_the_exact_output(seed: int, tmp_path: Path) -> None:
    """Any types, ties, colliding keys, negative multiplicities, steps and chunks: right at every time."""
    rng = np.random.default_rng(seed)
    types = [pa.int64(), pa.int64(), *(TYPES[rng.integers(len(TYPES))] for _ in range(2))]
    ranking, rows = random_ranking(rng, types), random_history(rng, types, least=-2 if seed % 2 else 0)
    expected = expected_output(rows, ranking, 2)
    for chunk_rows, cuts in CUTS:
        result = run(
            tmp_path,
            top_k,
            TopKSpec(RankingStateSpec(A), ranking),
            types,
            {A: ranking.layout},
            rows,
            cuts,
            rng,
            chunk_rows,
        )
        assert result == expected


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_split_without_a_limit_all_rows_but_the_first_are_shown(seed: int, tmp_path: Path) -> None:
    """An offset alone: the input's changes, less those of the rows that are kept back."""
    rng = np.random.default_rng(seed)
    types = [pa.int64(), pa.int64(), *(TYPES[rng.integers(len(TYPES))] for _ in range(2))]
    ranking, rows = random_ranking(rng, types), random_history(rng, types, least=0)
    ranking = replace(ranking, offset=0)
    expected = expected_output(rows, ranking, 2, complement=True)
    for chunk_rows, cuts in CUTS:
        spec = TopKSpec(RankingStateSpec(A), ranking, complement=True)
        assert run(tmp_path, top_k, spec, types, {A: ranking.layout}, rows, cuts, rng, chunk_rows) == expected


BY_VALUE = Ranking((pa.int64(), pa.int64(), pa.string()), (0,), (OrderKey(1),), 0, 10)


def large_group(rng: np.random.Generator, rows: int, time: int, diff: int = 1) -> pa.RecordBatch:
    """Rows of one group with random values."""
    values = rng.integers(0, 2**40, rows)
    names = pa.array(["a name of some length", "b"]).take(pa.array(values % 2))
    columns = [pa.array(np.zeros(rows, np.int64)), pa.array(values), names]
    return make_updates(columns, np.full(rows, time), np.full(rows, diff))


def test_a_step_reads_the_heads_and_not_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows in one group: hydration and steps of 100 rows read a few rows of each batch."""
    read: list[int] = []
    settle = FirstRowsReader.read_until

    def counted(self: FirstRowsReader, *arguments) -> RankedRows:
        ranked = settle(self, *arguments)
        read.append(self.rows_read)
        return ranked

    monkeypatch.setattr(FirstRowsReader, "read_until", counted)
    rng = np.random.default_rng(1)
    driver = Driver(tmp_path, Manifest.empty(A, BY_VALUE.layout, 0))
    for time in range(12):
        context = driver.context(time, time + 1, hydration=time == 0)
        chunks = [large_group(rng, 100_000, 0) for _ in range(10)] if time == 0 else [large_group(rng, 100, time)]
        for _ in top_k(context, TopKSpec(RankingStateSpec(A), BY_VALUE), chunks):
            pass
        driver.commit(context, compact=True)
    batches = 12
    assert len(read) == 12
    assert max(read) <= max(BY_VALUE.end + 1, LEAST_READ_ROWS) * batches


def test_retractions_that_eat_the_heads_are_read_on_behind(tmp_path: Path) -> None:
    """The first 500 rows of a group go at once, from under its top-k: what comes after them is found."""
    ranking = Ranking((pa.int64(), pa.int64()), (0,), (OrderKey(1),), 1, 3)
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, 0), merging=False)
    shown = []
    steps = [[((0, i), 0, 1) for i in range(1000)], [((0, i), 1, -1) for i in range(500)]]
    for time, rows in enumerate(steps):
        context = driver.context(time, time + 1, hydration=time == 0)
        shown.append(
            contents(top_k(context, TopKSpec(RankingStateSpec(A), ranking), [updates(list(ranking.types), rows)]))
        )
        driver.commit(context)
    assert shown[0] == {((0, 1), None, 0): 1, ((0, 2), None, 0): 1}
    assert shown[1] == {((0, 1), None, 1): -1, ((0, 2), None, 1): -1, ((0, 501), None, 1): 1, ((0, 502), None, 1): 1}


def first_of_all(tmp_path: Path, steps: list[list[tuple]], cuts: list[int]) -> Counter:
    """The least value, over steps that are neither merged nor compacted."""
    ranking = Ranking((pa.int64(),), (), (OrderKey(0),), 0, 1)
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, cuts[0]), merging=False)
    result: Counter = Counter()
    for rows, (lower, upper) in zip(steps, pairwise(cuts), strict=True):
        context = driver.context(lower, upper, hydration=lower == cuts[0])
        result.update(contents(top_k(context, TopKSpec(RankingStateSpec(A), ranking), [updates([pa.int64()], rows)])))
        driver.commit(context)
    return Counter({k: d for k, d in result.items() if d})


def test_a_row_cut_off_between_its_times_is_not_taken_for_whole(tmp_path: Path) -> None:
    """The step reads only the first updates of the best row, and must not miss that it goes later."""
    rows = [((1,), 0, 1), ((1,), 1, 1), ((1,), 2, -2), ((2,), 0, 1)]
    assert first_of_all(tmp_path, [rows], [0, 3]) == {
        ((1,), None, 0): 1,
        ((1,), None, 2): -1,
        ((2,), None, 2): 1,
    }


def test_previous_first_rows_are_read_as_far_as_needed(tmp_path: Path) -> None:
    """A better row comes, and settles what is first now; what was first stands behind rows that had gone by then."""
    gone = [((v,), time, diff) for v in range(10, 20) for time, diff in ((0, 1), (1, -1))]
    steps = [[*gone, ((20,), 0, 1)], [((5,), 2, 1)]]
    assert first_of_all(tmp_path, steps, [0, 2, 3]) == {
        ((10,), None, 0): 1,
        ((10,), None, 1): -1,
        ((20,), None, 1): 1,
        ((20,), None, 2): -1,
        ((5,), None, 2): 1,
    }


def test_many_times_in_one_step_are_shown_one_by_one(tmp_path: Path) -> None:
    """Fifty times in a step, more than are looked at side by side: each best row comes when it does, and goes."""
    ranking = Ranking((pa.int64(),), (), (OrderKey(0, descending=True),), 0, 1)
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, 0))
    context = driver.context(0, 50, hydration=True)
    rows = [((i,), i, 1) for i in range(50)]
    output_rows = contents(top_k(context, TopKSpec(RankingStateSpec(A), ranking), [updates([pa.int64()], rows)]))
    assert output_rows == {
        **{((i,), None, i): 1 for i in range(50)},
        **{((i - 1,), None, i): -1 for i in range(1, 50)},
    }


def test_a_negative_multiplicity_behind_the_last_place_is_not_looked_at(tmp_path: Path) -> None:
    """The row there is no part of the answer; it is an error once the rows before it are gone."""
    ranking = Ranking((pa.int64(),), (), (OrderKey(0),), 0, 1)
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, 0))
    shown = []
    for time, rows in enumerate([[((1,), 0, 1), ((2,), 0, -1)], [((1,), 1, -1)], [((2,), 2, 2)]]):
        context = driver.context(time, time + 1, hydration=time == 0)
        output_rows = contents(top_k(context, TopKSpec(RankingStateSpec(A), ranking), [updates([pa.int64()], rows)]))
        shown.append({row if error is None else "error": diff for (row, error, _), diff in output_rows.items()})
        driver.commit(context, compact=True)
    assert shown == [{(1,): 1}, {(1,): -1, "error": 1}, {"error": -1, (2,): 1}]
