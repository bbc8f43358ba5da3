"""A dataflow of one time: it shows what a view shows then, and keeps nothing but what it exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.cases import PARTS
from tests.oracle.check import Case, check_answers
from tests.oracle.harness import INDEX, SINK, DataflowHarness, delta, harness
from tests.oracle.histories import History, random_bounds, random_history
from tests.oracle.kinds import KINDS
from tests.oracle.oracle import Oracle
from tests.oracle.seeds import seeds
from tests.oracle.variants import TASKS, read_index
from tests.oracle.variants.in_process import InPieces, InProcessRunner, NeedsCatalyst, in_process
from tests.oracle.variants.in_tasks import InTasks
from tests.step_worker.shared import step_workers
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.dataflow import DataflowDescription, SourceImport
from tidemark_replica.render.execution.step_shape import ExchangePolicy

pytestmark = [pytest.mark.spark, pytest.mark.broad]
_IN_TASKS = {"exchange_policy": ExchangePolicy(TASKS, from_rows=0)}


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_oracle_a_query_answers_as_a_batch(oracle: Oracle, case: Case, seed: int, tmp_path: Path) -> None:
    """At several times: in one task, in several, by Catalyst, in a step worker. Earlier retractions do not show."""
    history = random_history(case.tables, seed + 170, changes=case.changes, tick=case.tick)
    answers, _ = oracle.spark_answers(case, history)
    with harness(oracle.spark, tmp_path, case.tables, history) as of:
        description = oracle.describe(case, of)
        times = [*answers][:: max(1, len(answers) // 3)]
        ways: tuple[dict[str, Any], ...] = (_IN_TASKS, {"arrow": False}, {"workers": step_workers()}, {})
        for number, time in enumerate(times):
            found = {way: once(of, description, time, ways[way]) for way in (number % 4, 0)}
            assert found[number % 4] == found[0]
            if case.lenient is None or answers[time].rows is not None:
                check_answers(case, found[0], {time: answers[time]}, {}, {})


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("family", PARTS)
def test_agree_a_query_answers_what_a_view_shows(
    oracle: Oracle, family: str, seed: int, grows: bool, tmp_path: Path
) -> None:
    """Every case, at some times of a history: whole, in several tasks, and few rows at a time.

    Over append-only tables top-k, min and max hold the first rows alone.
    """
    for number, case in enumerate(PARTS[family]):
        history = random_history(case.tables, seed + 1000 + number, changes=case.changes, tick=case.tick)
        history = without_retractions(history) if grows else history
        with in_process(tmp_path / str(number), case.tables, history) as of:
            description = oracle.describe(case, of)
            if grows:
                description = replace(description, source_imports=append_only(description.source_imports))
            try:
                shown = of.run(description, random_bounds(history, seed))
            except NeedsCatalyst:
                continue
            for time in history.times[:: max(1, len(history.times) // 3)]:
                then = _at(shown, time)
                for how in ({"runner": InProcessRunner}, {"runner": InPieces}, {"runner": InTasks, **_IN_TASKS}):
                    found = once(of, description, time, how)
                    assert _at(found, time) == then, f"{case.name} at {time}, {how}"


def append_only(imports: tuple[SourceImport, ...]) -> tuple[SourceImport, ...]:
    """The imports, as of tables that are known to grow."""
    return tuple(replace(each, monotonic=True) for each in imports)


def without_retractions(history: History) -> History:
    """The history of tables from which nothing is taken."""
    grown = {table: tuple(c for c in changes if c[2] > 0) for table, changes in history.changes.items()}
    return replace(history, changes=grown)


def once(of: DataflowHarness, description: DataflowDescription, time: int, how: Mapping[str, Any]) -> Counter[Any]:
    """The updates of the dataflow at one time. Nothing is kept but its index, which holds them, too."""
    dataflow = of.build(replace(description, as_of=Time(time), until=Time(time + 1)), **how)
    try:
        outcome = of.step(dataflow, of.history.last + 5)
        made = delta(outcome, SINK)
        outcome.release()
        assert dataflow.frontier == Frontier.empty()
        rows, errors = read_index(of, dataflow, time)
        assert _at(made, time) == {(row, None): n for row, n in rows.items()} | _errors(made, errors)
        exported = dataflow.indexes[INDEX].arrangement
        assert all(not m.batches for m in dataflow.arrangements() if m.arrangement != exported)
        assert {file.split("/")[0] for file in _files(of)} <= {exported}
    finally:
        dataflow.drop()
    return made


def _files(of: DataflowHarness) -> set[str]:
    """The files in the store, which are those that manifests name once it is swept."""
    of.store.sweep(())
    assert {*stored_files(of.store.directory)} == {*live_files(of.store.arrangements())}
    return {str(file) for file in stored_files(of.store.directory)}


def _errors(made: Mapping[Any, int], errors: Mapping[str, int]) -> dict[Any, int]:
    return {(row, error): errors[error] for row, error, _ in made if error is not None and errors.get(error)}


def _at(updates: Mapping[Any, int], time: int) -> Counter[Any]:
    """(row, error) and its multiplicity at a time."""
    found: Counter[Any] = Counter()
    for (row, error, at), n in updates.items():
        if at <= time:
            found[row, error] += n
    return Counter({key: n for key, n in found.items() if n})
