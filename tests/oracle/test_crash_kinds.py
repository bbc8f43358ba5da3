"""A step cut short in every kind of operator: the state stays what it was, and the step that is run again counts once.

One kind of fault for each kind of operator and place, chosen in turn, so that every operator meets one and every fault
meets several operators; `test_crash.py` has all of them for one query.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.check import Case
from tests.oracle.harness import SINK, DataflowHarness, consolidated, contents, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.kinds import KINDS
from tests.oracle.oracle import Oracle
from tests.oracle.tables import TU
from tests.oracle.variants import read_index
from tests.oracle.variants.faults import Fault, run_faulty
from tests.render.sharing.test_own_indexes import described, reads
from tests.render.sharing.test_shared_arrangements import BOTH
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution import prepare

pytestmark = [pytest.mark.spark, pytest.mark.broad]

ATTEMPTS = 2  # as the session allows
FAULTS = cycle(product(("before report", "reading", "after report"), ("raise", "kill")))
MET = [(case, *fault) for case, fault in zip(KINDS, FAULTS, strict=False)]


@pytest.mark.parametrize(("case", "where", "how"), MET, ids=[f"{c.name}-{w}-{h}" for c, w, h in MET])
def test_crash_in_every_kind_of_operator_leaves_the_state(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: Case, where: str, how: str
) -> None:
    """The second step fails in all its attempts, and then succeeds with what the first one left."""
    history = random_history(case.tables, 12, changes=case.changes, tick=case.tick)
    middle, end = history.times[len(history.times) // 2], history.last + 1
    with harness(oracle.spark, tmp_path / "quiet", case.tables, history) as quiet:
        expected = quiet.run(oracle.describe(case, quiet), [middle, end])
    with harness(oracle.spark, tmp_path / "disturbed", case.tables, history) as disturbed:
        fault = Fault(disturbed.folder / "fault", where, how, ATTEMPTS)
        monkeypatch.setattr(prepare, "run_stage", partial(run_faulty, fault))
        assert cut_short(disturbed, oracle.describe(case, disturbed), fault, middle, end) == expected


@pytest.mark.parametrize("where", ["before report", "after report"])
def test_crash_of_an_index_and_of_the_view_that_reads_it(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """The worker dies in the fragment that keeps the index, or when it has ended: both views stay where they were."""
    history = random_history(TU, 14, changes=8)
    middle, end = history.times[4], history.last + 1
    read = reads(BOTH, 0)["on the right, and with itself"]
    with harness(oracle.spark, tmp_path / "quiet", TU, history) as quiet:
        expected = quiet.run(described(quiet, BOTH, read), [middle, end])
    with harness(oracle.spark, tmp_path / "disturbed", TU, history) as disturbed:
        fault = Fault(disturbed.folder / "fault", where, "kill", ATTEMPTS)
        monkeypatch.setattr(prepare, "run_stage", partial(run_faulty, fault))
        assert cut_short(disturbed, described(disturbed, BOTH, read), fault, middle, end) == expected


def cut_short(
    of: DataflowHarness, description: DataflowDescription, fault: Fault, middle: int, end: int
) -> Counter[Any]:
    """All updates, over a step that fails until its attempts are used up and is run again."""
    dataflow = of.build(description)
    made: Counter[Any] = Counter(delta(of.step(dataflow, middle), SINK))
    before = sorted(of.store.arrangements(), key=lambda m: m.arrangement)
    step = dataflow.plan_step(Frontier.at(end), of.inputs(dataflow, end))
    fault.folder.mkdir()
    with pytest.raises(StepFailed):
        dataflow.run(step)
    assert fault.strikes == ATTEMPTS
    assert sorted(of.store.arrangements(), key=lambda m: m.arrangement) == before
    assert read_index(of, dataflow, middle - 1) == contents(consolidated(made), middle - 1)

    outcome = dataflow.run(step)
    dataflow.commit(outcome)
    of.store.sweep(())
    root = of.store.directory
    assert stored_files(root) == live_files(of.store.arrangements())
    made.update(delta(outcome, SINK))
    return consolidated(made)
