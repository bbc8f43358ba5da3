"""Steps of bounded rows give the updates of wide ones, for every operator, and over shards as over indexes.

Without Spark's jobs; `tests/oracle/test_variants.py` has the same with them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import INDEX, SINK, DataflowHarness, Updates, consolidated, delta
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU
from tests.oracle.variants import from_time, narrowed
from tests.oracle.variants.in_process import NeedsCatalyst, in_process
from tests.render.sharing.test_index_imports import IMPORTED, INDEXED, importing
from tests.render.test_operators import BY_HAND
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.lir import Plan

SHARED = [
    (joined(INDEXED, GET_U), joined(GET_T, GET_U)),
    (joined(INDEXED, INDEXED), joined(GET_T, GET_T)),
    (counted(INDEXED), counted(GET_T)),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "plan", "tables"), BY_HAND, ids=[name for name, *_ in BY_HAND])
def test_agree_narrowed_steps(name: str, plan: Plan, tables: Any, seed: int, tmp_path: Path) -> None:
    """However few rows a step may have, also where the dataflow is begun anew in the middle."""
    history = random_history(tables, seed + 90)
    bounds = random_bounds(history, seed)
    with in_process(tmp_path, tables, history) as of:
        description = of.describe(plan)
        try:
            wide = of.run(description, bounds)
        except NeedsCatalyst:
            pytest.skip("it is a Spark plan")
        as_of, made = narrowed(of, description, bounds)
        assert made == from_time(wide, as_of)


@pytest.mark.parametrize(("shared", "direct"), SHARED, ids=["one index", "one index twice", "an index as a stream"])
def test_agree_narrowed_steps_over_an_index(shared: Plan, direct: Plan, tmp_path: Path) -> None:
    """The index is far ahead and its batches are merged; a step counts its updates too."""
    history = random_history(TU, 17, times=12, changes=6)
    end = history.last + 1
    with in_process(tmp_path, TU, history) as of:
        wide = of.run(of.describe(direct), [end])
        exporter = of.build(of.describe(GET_T))
        of.step(exporter, history.as_of + 1).release()
        importer = of.build(importing(of, shared, history.as_of), indexes={IMPORTED: exporter.indexes[INDEX]})
        of.step(exporter, end).release()
        steps, made = in_narrow_steps(of, importer, end)
    assert made == wide
    assert steps > 3


def in_narrow_steps(of: DataflowHarness, dataflow: Any, end: int) -> tuple[int, Updates]:
    """(steps, updates) up to `end`, in steps of 3 updates of the shard and of the index together, or of one time."""
    times = [at for name in ("t", "u") for _, at, _ in of.history.changes[name]]
    reads = [at for at in times if at > of.history.as_of]
    made: Counter[Any] = Counter()
    steps = 0
    while dataflow.frontier < Frontier.at(end):
        outcome = of.step(dataflow, end, 3)
        within = [at for at in reads if outcome.step.lower <= at < outcome.step.limit]
        assert outcome.step.hydrates or len(set(within)) <= 1 or len(within) <= 3
        made.update(delta(outcome, SINK))
        outcome.release()
        steps += 1
    return steps, consolidated(made)
