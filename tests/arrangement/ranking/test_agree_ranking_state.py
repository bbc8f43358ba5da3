"""Ways of keeping a ranking's state agree: all rows, and the first rows alone, give the same updates."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, A, Driver, contents, seeds, updates
from tests.arrangement.ranking.first_rows_runs import CUTS, random_history, run
from tests.arrangement.ranking.test_top_k import expected_output, random_ranking
from tests.arrangement.reduce.test_extremes import expected_output as expected_extremes
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.kernels.ranking.extremes import Extreme, ExtremesShape, ExtremesSpec, SortedValue, extremes
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingStateSpec
from tidemark_replica.kernels.ranking.top_k import TopKSpec, top_k


def kept_as(name: str, ranking: Ranking) -> tuple[RankingStateSpec, dict[ArrangementId, Layout]]:
    """The state of a growing input, and the layout of its arrangement."""
    return RankingStateSpec(ArrangementId(name), monotonic=True), {ArrangementId(name): ranking.layout}


@pytest.mark.parametrize("seed", seeds(3, 24))
def test_agree_top_k_of_all_ways_of_keeping(seed: int, tmp_path: Path) -> None:
    """Any ranking and what it leaves, over random histories, those of growing inputs without retractions."""
    rng = np.random.default_rng(seed)
    types = [pa.int64(), pa.int64(), *(TYPES[rng.integers(len(TYPES))] for _ in range(2))]
    ranking, complement = random_ranking(rng, types), seed % 3 == 2
    ranking = replace(ranking, offset=0 if complement else ranking.offset)
    rows = random_history(rng, types, least=0)
    expected = expected_output(rows, ranking, 2, complement=complement)
    for chunk_rows, cuts in CUTS:
        state, layouts = kept_as("a", ranking)
        spec = TopKSpec(state, ranking, complement)
        assert run(tmp_path, top_k, spec, types, layouts, rows, cuts, rng, chunk_rows) == expected


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_agree_extremes_of_all_ways_of_keeping(seed: int, tmp_path: Path) -> None:
    """Two values in both directions, one with a filter."""
    rng = np.random.default_rng(seed)
    types = (pa.int64(), pa.int64(), TYPES[rng.integers(len(TYPES))], TYPES[rng.integers(len(TYPES))], pa.bool_())
    values = (SortedValue(2, False), SortedValue(2, True), SortedValue(3, True, 4))
    of = ExtremesShape(types, (0, 1) if seed % 2 else (), tuple(Extreme(v, f"e{i}") for i, v in enumerate(values)))
    rows = random_history(rng, list(types), least=0)
    expected = expected_extremes(rows, of, 2)
    for chunk_rows, cuts in CUTS:
        kept = [kept_as(f"a{i}", of.ranking(v)) for i, v in enumerate(of.values)]
        layouts = {a: layout for _, each in kept for a, layout in each.items()}
        spec = ExtremesSpec(of, tuple(state for state, _ in kept))
        assert run(tmp_path, extremes, spec, list(types), layouts, rows, cuts, rng, chunk_rows) == expected


def test_a_monotonic_input_keeps_its_first_rows(tmp_path: Path) -> None:
    """Thousands of rows come in fifty steps: three of them are kept, and nothing is left of what was on the way."""
    ranking = Ranking((pa.int64(), pa.int64()), (0,), (OrderKey(1),), 1, 3)
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, 0))
    rng = np.random.default_rng(1)
    for time in range(50):
        context = driver.context(time, time + 1, hydration=time == 0)
        rows = [((0, int(v)), time, 1) for v in rng.integers(0, 1000, 40)]
        for _ in top_k(
            context, TopKSpec(RankingStateSpec(A, monotonic=True), ranking), [updates(list(ranking.types), rows)]
        ):
            pass
        if time == 0:
            assert {f"a/{p.name}" for p in (tmp_path / "a").iterdir()} == {r.file for r in context.writer.written[A]}
        driver.commit(context, compact=True)
        live = driver.manifests[A]
    contained: Counter = Counter()
    for batch in live.batches:
        for segment in driver.cache.segments(batch, live.layout):
            for value, diff in zip(segment.rows.column(2).to_pylist(), segment.rows.column(5).to_pylist(), strict=True):
                contained[value] += diff
    assert sum(contained.values()) == 3
    assert live.rows <= 3 * 50


def test_a_row_that_leaves_a_growing_input_is_an_error_for_ever(tmp_path: Path) -> None:
    """The row that would have moved up is forgotten: no answer is better than a wrong one. Updates that cancel in a
    snapshot are no error."""
    ranking = Ranking((pa.int64(),), (), (OrderKey(0),), 0, 1)
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, 0), chunk_rows=2)
    spec = TopKSpec(RankingStateSpec(A, monotonic=True), ranking)
    snapshot = [((1,), 0, 1), ((2,), 0, 1), ((0,), 0, 1), ((0,), 0, -1)]
    steps = [snapshot, [((1,), 1, 1), ((5,), 1, 1), ((1,), 1, -1)], [((2,), 2, -1), ((9,), 2, 1)]]
    errors = []
    for time, rows in enumerate(steps):
        context = driver.context(time, time + 1, hydration=time == 0)
        output_rows = contents(top_k(context, spec, [updates([pa.int64()], rows)]))
        errors.append([d for (_, error, _), d in output_rows.items() if error and "NON_MONOTONIC_INPUT" in error])
        driver.commit(context)
    assert errors == [[], [1], [1]]
