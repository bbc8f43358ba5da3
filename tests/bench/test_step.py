"""The step benchmark: it runs, and it does not report the times of wrong answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.harness.answers import WrongAnswer
from bench.harness.case import Case, prepare
from bench.harness.engine import View
from bench.harness.measure import measure
from bench.harness.query import JOIN_AND_SUM, Planner, planner

pytestmark = pytest.mark.spark
RATIOS = {
    f"{name}_{kind}"
    for name in ("state", "empty_job", "spark_recompute", "spark_cached", "duckdb")
    for kind in ("ratio", "cpu_ratio")
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cache of the test's own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("cache"))
        patch.setenv("TIDEMARK_CACHE", folder)
        yield folder


@pytest.fixture(scope="module")
def case(cache: str) -> Case:
    return prepare(2000, JOIN_AND_SUM, 2, 10)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with planner(tmp_path_factory.mktemp("planner")) as plan:
        yield plan


def test_the_last_line_has_every_figure(cache: str) -> None:
    """A whole run on small tables: nothing on standard output but one JSON object."""
    command = [sys.executable, "-m", "bench.step", "--json", "--rows", "2000,4000", "--steps", "2"]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=400)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    printed = json.loads(line)
    assert printed["bench"] == "step"
    figures = printed["figures"]
    per_size = {f"step_ms_{p}_{size}" for p in ("p50", "p95", "min") for size in ("2k", "4k")}
    assert figures.keys() >= RATIOS | per_size | {"hydration_rows_per_s_2k", "hydration_rows_per_s_4k"}
    assert all(value > 0 for name, value in figures.items() if "cpu" not in name)  # CPU time is coarse
    assert printed["context"]["steps"] == 2
    assert printed["context"]["cores"] >= 1


@pytest.mark.parametrize("wrong_at", [0, 1, 2])
def test_must_fail_on_a_planted_wrong_answer(
    wrong_at: int, spark: Any, tmp_path: Path, plan: Planner, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line too many in one group, after hydration or after any delta, ends the run."""
    right, asked = View.answer, iter(range(3))

    def planted(view: View) -> pa.Table:
        answer = right(view)
        if next(asked) != wrong_at:
            return answer
        one_more = pa.array([1] + [0] * (answer.num_rows - 1))
        return answer.set_column(2, "lines", pc.add(answer["lines"], one_more))

    monkeypatch.setattr(View, "answer", planted)
    with pytest.raises(WrongAnswer, match=f"after {wrong_at} deltas"):
        measure(spark, tmp_path, plan, JOIN_AND_SUM, [case], warm_up=0)


def test_steps_of_a_right_engine_are_measured(spark: Any, tmp_path: Path, plan: Planner, case: Case) -> None:
    """Without a plant the same run ends with a time for every delta, warm-up apart."""
    rounds = measure(spark, tmp_path, plan, JOIN_AND_SUM, [case], warm_up=1)
    (size,) = rounds.sizes
    assert len(size.steps) == len(rounds.empty_job) == 1
    assert size.steps[0].wall >= size.phases[0].run > 0
    assert size.state_rows >= case.tables.lineitem.rows
    assert size.rows_read == case.tables.lineitem.rows + case.tables.part.rows
