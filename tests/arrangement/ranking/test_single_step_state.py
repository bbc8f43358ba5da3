"""Top-k, min and max in the only step of a dataflow: the first rows alone are held, and nothing is left."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, A, Driver, contents, seeds, updates
from tests.arrangement.ranking.first_rows_runs import random_history
from tests.arrangement.ranking.test_top_k import expected_output, random_ranking
from tests.arrangement.reduce.test_extremes import expected_output as expected_extremes
from tests.stored_files import stored_files
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.ranking.extremes import Extreme, ExtremesShape, ExtremesSpec, SortedValue, extremes
from tidemark_replica.kernels.ranking.partial_first_rows import PartialFirstRowsSpec, partial_first_rows
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingStateSpec, Retractions
from tidemark_replica.kernels.ranking.top_k import TopKSpec, top_k

TIME = 2
FIRST_THREE = Ranking((pa.int64(), pa.int64()), (0,), (OrderKey(1),), 1, 3)


def only_step(driver: Driver, *, adds_only: bool) -> StepContext:
    context = driver.context(TIME, TIME + 1, hydration=True)
    return replace(context, is_only_step=True, inputs_add_only=adds_only)


def at_once(rows: list[tuple]) -> list[tuple]:
    """The rows of a history as a snapshot has them: at one time, those that cancel among them."""
    return [(row, TIME, diff) for row, _, diff in rows]


@pytest.mark.parametrize("seed", seeds(4, 24))
@pytest.mark.parametrize("chunk_rows", [3, 7, 1000])
def test_agree_top_k_of_one_time(seed: int, chunk_rows: int, tmp_path: Path) -> None:
    """Any ranking and what it leaves; through tasks before an exchange; with retractions, where some are possible."""
    rng = np.random.default_rng(seed)
    types = [pa.int64(), pa.int64(), *(TYPES[rng.integers(len(TYPES))] for _ in range(2))]
    ranking, complement, adds_only = random_ranking(rng, types), seed % 4 == 2, seed % 4 < 3
    ranking = replace(ranking, offset=0 if complement else ranking.offset)
    rows = at_once(random_history(rng, types, least=0 if adds_only else -1))
    driver = Driver(tmp_path, Manifest.empty(A, ranking.layout, TIME), chunk_rows=chunk_rows)
    context = only_step(driver, adds_only=adds_only)
    spec = TopKSpec(RankingStateSpec(A, seed % 2 == 0, Retractions.OF_INPUTS), ranking, complement)
    sent: Any = [updates(types, rows)]
    if not complement:
        sent = list(partial_first_rows(context, PartialFirstRowsSpec(spec.state, ranking), sent))
    found = contents(top_k(context, spec, sent))
    plain = driver.context(TIME, TIME + 1, hydration=True)
    view = top_k(plain, replace(spec, state=RankingStateSpec(A)), [updates(types, rows)])
    assert found == contents(view)
    if adds_only:
        assert {key: n for key, n in found.items() if n} == expected_output(rows, ranking, TIME, complement=complement)
    assert not context.writer.written
    assert {file for file in stored_files(tmp_path) if context.writer.name in file} == set()


@pytest.mark.parametrize("seed", seeds(2, 16))
@pytest.mark.parametrize("chunk_rows", [3, 1000])
def test_agree_extremes_of_one_time(seed: int, chunk_rows: int, tmp_path: Path) -> None:
    """Two values in both directions, one with a filter."""
    rng = np.random.default_rng(seed)
    types = (pa.int64(), pa.int64(), TYPES[rng.integers(len(TYPES))], TYPES[rng.integers(len(TYPES))], pa.bool_())
    values = (SortedValue(2, False), SortedValue(2, True), SortedValue(3, True, 4))
    of = ExtremesShape(types, (0, 1) if seed % 2 else (), tuple(Extreme(v, f"e{i}") for i, v in enumerate(values)))
    rows = at_once(random_history(rng, list(types), least=0))
    ids = [ArrangementId(f"a{i}") for i in range(len(of.values))]
    layouts = [of.ranking(v).layout for v in of.values]
    manifests = (Manifest.empty(a, layout, TIME) for a, layout in zip(ids, layouts, strict=True))
    driver = Driver(tmp_path, *manifests, chunk_rows=chunk_rows)
    context = only_step(driver, adds_only=True)
    spec = ExtremesSpec(of, tuple(RankingStateSpec(a, retractions=Retractions.OF_INPUTS) for a in ids))
    found = contents(extremes(context, spec, [updates(list(types), rows)]))
    assert {key: n for key, n in found.items() if n} == expected_extremes(rows, of, TIME)
    assert not context.writer.written
    assert not stored_files(tmp_path)


def test_the_first_rows_of_a_few_groups_stay_in_memory(tmp_path: Path) -> None:
    """Thousands of rows of ten groups are thinned out as they come: no file is written on the way."""
    driver = Driver(tmp_path, Manifest.empty(A, FIRST_THREE.layout, TIME), chunk_rows=100)
    context, rng = only_step(driver, adds_only=True), np.random.default_rng(1)
    rows = [((int(n % 10), int(rng.integers(0, 10_000))), TIME, 1) for n in range(5000)]
    wanted: Counter = Counter()
    for group in range(10):
        for value in sorted(row[1] for row, _, _ in rows if row[0] == group)[1:3]:
            wanted[(group, value), None, TIME] += 1
    spec = TopKSpec(RankingStateSpec(A, retractions=Retractions.NEVER), FIRST_THREE)
    assert contents(top_k(context, spec, [updates(list(FIRST_THREE.types), rows)])) == wanted
    assert context.writer._files == 0


def test_a_retraction_where_there_can_be_none_is_an_error(tmp_path: Path) -> None:
    """The rows behind the first ones are gone, so an answer would be wrong. A task before an exchange passes it on."""
    driver = Driver(tmp_path, Manifest.empty(A, FIRST_THREE.layout, TIME))
    context = only_step(driver, adds_only=True)
    rows = [((0, 1), TIME, 1), ((0, 2), TIME, 1), ((0, 2), TIME, -1)]
    state = RankingStateSpec(A, retractions=Retractions.OF_INPUTS)
    sent: Any = [updates(list(FIRST_THREE.types), rows)]
    for _ in range(2):
        found = contents(top_k(context, TopKSpec(state, FIRST_THREE), sent))
        assert any("NON_MONOTONIC_INPUT" in error for _, error, _ in found if error is not None)
        sent = list(partial_first_rows(context, PartialFirstRowsSpec(state, FIRST_THREE), sent))
