"""Recursions over random histories: at every time the fixpoint of the tables at that time."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.check import Case
from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, contents, delta, harness
from tests.oracle.histories import History, random_bounds, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.recursions.nested_queries import NESTED
from tests.oracle.recursions.recursive_joins import JOINS
from tests.oracle.recursions.recursive_plans import ENDLESS, RECURSIONS, E, Recursion
from tests.oracle.recursions.recursive_queries import QUERIES
from tests.oracle.variants.faults import Fault, run_faulty
from tests.stored_files import live_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.render import recursion
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution import prepare

pytestmark = [pytest.mark.spark, pytest.mark.broad]


def run(oracle: Oracle, case: Recursion, seed: int, bounds: int, folder: Path) -> Updates:
    history = random_history({"e": case.table}, seed, changes=case.changes)
    with harness(oracle.spark, folder, {"e": case.table}, history) as of:
        return of.run(describe(oracle, case, of), random_bounds(history, bounds))


def describe(oracle: Oracle, case: Recursion, of: DataflowHarness) -> DataflowDescription:
    plan, sql = (None, case.query) if isinstance(case.query, str) else (case.query, "")
    return oracle.describe(Case(case.name, sql, {"e": case.table}, plan), of)


def check(case: Recursion, seed: int, updates: Updates) -> None:
    """Rows, or an error, at every time."""
    history = random_history({"e": case.table}, seed, changes=case.changes)
    for time in history.times:
        rows, errors = contents(updates, time)
        expected = case.expected(Counter(history.rows_at("e", time)))
        if expected is None:
            assert errors, f"{case.name} at {time}"
        else:
            assert (rows, errors) == (expected, {}), f"{case.name} at {time}"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [*RECURSIONS, *QUERIES, *JOINS, *NESTED], ids=lambda case: case.name)
def test_oracle_a_recursion_shows_its_fixpoint(oracle: Oracle, case: Recursion, seed: int, tmp_path: Path) -> None:
    """At every time, and however the history is cut into steps."""
    updates = run(oracle, case, seed, seed, tmp_path)
    check(case, seed, updates)
    assert run(oracle, case, seed, seed + 1000, tmp_path / "again") == updates


@pytest.mark.parametrize("name", ["closure", "even and odd", "an error in the last round's inner recursion"])
def test_agree_a_loop_in_a_task_and_one_of_jobs(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
) -> None:
    """The same updates, whoever drives the rounds."""
    case = next(c for c in (*RECURSIONS, *NESTED) if c.name == name)
    inside = run(oracle, case, 3, 3, tmp_path)
    monkeypatch.setattr(recursion, "fits_a_task", lambda parts: False)
    assert run(oracle, case, 3, 3, tmp_path / "jobs") == inside


def test_crash_a_loop_cut_short_leaves_the_state_and_runs_again(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the second step both attempts of a round's job fail, after other rounds have written.

    Rounds are jobs of their own where Catalyst has the expressions.
    """
    case = next(c for c in RECURSIONS if c.name == "walks")
    history = random_history({"e": case.table}, 2, changes=case.changes)
    middle, end = history.times[len(history.times) // 2], history.last + 1
    with harness(oracle.spark, tmp_path, {"e": case.table}, history) as of:
        fault = Fault(tmp_path / "fault", "feedback", "raise", 2)
        monkeypatch.setattr(prepare, "run_stage", partial(run_faulty, fault))
        dataflow = of.build(describe(oracle, case, of), arrow=False)
        fault.folder.mkdir()
        (fault.folder / "0").touch(), (fault.folder / "1").touch()  # not yet
        made: Counter[Any] = Counter(delta(of.step(dataflow, middle), SINK))
        (fault.folder / "0").unlink(), (fault.folder / "1").unlink()
        before = sorted(of.store.arrangements(), key=lambda m: m.arrangement)
        step = dataflow.plan_step(Frontier.at(end), of.inputs(dataflow, end))

        with pytest.raises(StepFailed):
            dataflow.run(step)
        assert fault.strikes == 2
        assert sorted(of.store.arrangements(), key=lambda m: m.arrangement) == before

        outcome = dataflow.run(step)
        dataflow.commit(outcome)
        made.update(delta(outcome, SINK))
        assert set(of.store.directory.glob("*/*")) == {
            of.store.directory / file for file in live_files(of.store.arrangements())
        }
    check(case, 2, consolidated(made))


@pytest.mark.parametrize("in_a_task", [True, False])
def test_must_a_recursion_without_end_fails_its_step_alone(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, in_a_task: bool, tmp_path: Path
) -> None:
    """It says so, changes nothing, and goes on once the data lets it end."""
    monkeypatch.setattr(recursion, "MAX_ITERATIONS", 12)
    monkeypatch.setattr(recursion, "fits_a_task", lambda parts: in_a_task)
    history = History({"e": (((1, 1, 0), 3, 1), ((1, 1, 0), 5, -1), ((1, 2, 0), 5, 1))}, 3, 5)
    with harness(oracle.spark, tmp_path, {"e": E}, history) as of:
        dataflow = of.build(of.describe(ENDLESS))
        with pytest.raises(StepFailed, match="still changes after 12 iterations at time 3"):
            of.step(dataflow, 4)
        assert dataflow.frontier == Frontier.at(3)
        dataflow.drop()
        repaired = of.build(of.describe(ENDLESS, as_of=5))
        rows, errors = contents(delta(of.step(repaired, 6), SINK), 5)
    assert (rows, errors) == ({(1, 2): 1}, {})
