"""Readers of one index at frontiers of their own, while it goes on, is compacted and merged under them."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.oracle.harness import INDEX, SINK, DataflowHarness, consolidated, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, GET_U, joined
from tests.oracle.tables import TU
from tests.oracle.variants.faults import Fault, run_faulty
from tests.render.sharing.test_index_imports import IMPORTED, INDEXED, importing
from tests.stored_files import live_files, stored_files
from tests.waiting import BOUND
from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import JoinProblem
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.lir import Plan, refs
from tidemark_protocol.types import BOOLEAN
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution import prepare
from tidemark_replica.render.stepped_dataflow import StepOutcome

pytestmark = pytest.mark.spark

HISTORY = random_history(TU, 21, times=12, changes=6)
END = HISTORY.last + 1
ATTEMPTS = 2  # as the session allows


def three_ways(indexed: Plan) -> Plan:
    """A delta join of t, u and t again, by column a; `indexed` is met by its key twice."""
    inputs = (indexed, GET_U, indexed)
    row = refs(tuple(c for i in inputs for c in i.schema))
    equal = (call("=", (row[0], row[3]), BOOLEAN), call("=", (row[3], row[5]), BOOLEAN))
    keys = (((0,),), (), ((0,),))
    made = delta_join(JoinProblem(inputs, keys, equal, FilterProject((), (row[1], row[4], row[7]))))
    assert made is not None
    return made


PLANS = {
    "linear": (joined(INDEXED, GET_U), joined(GET_T, GET_U)),
    "delta": (three_ways(INDEXED), three_ways(GET_T)),
}


def reader(made: DataflowHarness, exporter: RenderedDataflow, plan: Plan) -> RenderedDataflow:
    return made.build(importing(made, plan, HISTORY.as_of), indexes={IMPORTED: exporter.indexes[INDEX]})


def go_on(made: DataflowHarness, exporter: RenderedDataflow, upper: int) -> None:
    """The index's own step, and everybody outside allows all compaction there can be."""
    made.step(exporter, upper)
    exporter.compact(INDEX, Frontier.at(upper - 1))


def index_files(made: DataflowHarness, exporter: RenderedDataflow) -> set[str]:
    return set(exporter.indexes[INDEX].manifest.files)


def batch_files(made: DataflowHarness) -> set[str]:
    return stored_files(made.store.directory)


@pytest.mark.parametrize(("shared", "direct"), PLANS.values(), ids=PLANS)
def test_split_readers_at_different_frontiers(spark: Any, tmp_path: Path, shared: Plan, direct: Plan) -> None:
    """Three readers, each at a random pace behind an index that is always compacted: all read the same, once."""
    rng = random.Random(5)
    with harness(spark, tmp_path, TU, HISTORY) as of:
        exporter = of.build(of.describe(GET_T))
        readers = [reader(of, exporter, shared) for _ in range(3)]
        made: list[Counter[Any]] = [Counter() for _ in readers]
        for upper in (*HISTORY.times[1:], END):
            go_on(of, exporter, upper)
            for at, behind in enumerate(readers):
                if behind.frontier.encode() < upper and (upper == END or rng.random() < (0.8, 0.4, 0.15)[at]):
                    made[at].update(delta(of.step(behind, upper), SINK))
        expected = of.run(of.describe(direct), [END])

        assert expected
        assert [consolidated(m) for m in made] == [expected] * 3


def test_crash_a_reader_that_fails_reads_again_from_an_index_that_went_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hydration dies in every attempt, twice; the index is further and merged each time that it is tried again."""
    shared, direct = PLANS["delta"]
    fault = Fault(tmp_path / "fault", "index", "kill", 2 * ATTEMPTS)
    fault.folder.mkdir()
    with harness(spark, tmp_path / "harness", TU, HISTORY) as of:
        exporter = of.build(of.describe(GET_T))
        monkeypatch.setattr(prepare, "run_stage", partial(run_faulty, fault))
        importer = reader(of, exporter, shared)
        go_on(of, exporter, HISTORY.times[3])
        first = importer.plan_step(Frontier.at(HISTORY.times[3]), of.inputs(importer, HISTORY.times[3]))
        for upper in (HISTORY.times[6], HISTORY.times[9]):
            with pytest.raises(StepFailed):
                importer.run(first)
            go_on(of, exporter, upper)
        outcome = importer.run(first)
        importer.commit(outcome)
        made = Counter(delta(outcome, SINK))
        go_on(of, exporter, END)
        made.update(delta(of.step(importer, END), SINK))

        assert fault.strikes == 2 * ATTEMPTS
        assert consolidated(made) == of.run(of.describe(direct), [END])


def test_crash_an_index_is_merged_and_its_dataflow_dropped_under_a_step_that_reads_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step reads the files that it began with to the end; they go with it, and nothing is left of the index."""
    shared, direct = PLANS["linear"]
    fault = Fault(tmp_path / "fault", "index", "hang", 1)
    fault.folder.mkdir()
    done: list[StepOutcome] = []
    with harness(spark, tmp_path / "harness", TU, HISTORY) as of:
        exporter = of.build(of.describe(GET_T))
        monkeypatch.setattr(prepare, "run_stage", partial(run_faulty, fault))
        importer = reader(of, exporter, shared)
        go_on(of, exporter, HISTORY.times[4])
        step = importer.plan_step(Frontier.at(HISTORY.times[4]), of.inputs(importer, HISTORY.times[4]))
        reading = index_files(of, exporter)
        thread = Thread(target=lambda: done.append(importer.run(step)))
        thread.start()
        while not fault.strikes:
            thread.join(0.05)
            assert thread.is_alive(), "the step ended without reading the index"
        for upper in (*HISTORY.times[5:], END):
            go_on(of, exporter, upper)
        exporter.drop()
        assert reading <= batch_files(of)
        fault.end()
        thread.join(BOUND)
        (outcome,) = done
        importer.commit(outcome)
        made = consolidated(Counter(delta(outcome, SINK)))
        whole = of.run(of.describe(direct), [END])
        of.store.sweep(())

        assert made == consolidated(Counter({key: n for key, n in whole.items() if key[2] < HISTORY.times[4]}))
        assert batch_files(of) == live_files(of.store.arrangements())
        assert not reading & batch_files(of)
