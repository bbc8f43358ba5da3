"""Merges at every opportunity: in steps, beside them, settled, failed and swept in the middle of a step.

    step      fragment 0 ─── fragment 1 ─── commit         between them the command loop compacts an index, and so
                 │ settle?       │ settle?                 settles what has been merged beside the step; a sweep comes
    beside    ── order ── carry_out ── result ──           after it; every third job dies after its work

Batches of two rows are large, so histories of a few rows are merged as those of millions are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.checked_patches import CheckedPatches
from tests.oracle.harness import INDEX, SINK, DataflowHarness, Updates, consolidated, delta
from tests.oracle.variants.in_tasks import InTasks
from tests.stored_files import live_files, stored_files
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.arrangement.spines import merge_policy, spine
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution import background_merges
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.task.description import StageReport


class Interfered(InTasks):
    """Before and after every fragment something may happen on the command loop."""

    @staticmethod
    def happens() -> None:
        """Nothing, unless a test says otherwise."""

    def run(self, work: FragmentRun) -> StageReport:
        Interfered.happens()
        report = super().run(work)
        Interfered.happens()
        return report


def merged(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Steps over batches that are merged all the time; no file but those of the manifests is left."""
    rng = random.Random(str((bounds, description.name)))
    made: Updates = Counter()
    with CheckedPatches.context() as patch:
        _everything_is_large(patch, rng)
        dataflow = of.build(
            description, runner=Interfered, exchange_policy=ExchangePolicy(2, from_rows=rng.choice([4, 10**9]))
        )
        patch.setattr(Interfered, "happens", staticmethod(lambda: _settle(dataflow, rng)))
        for upper in _finer(bounds):
            if dataflow.frontier < Frontier.at(upper):
                outcome = of.step(dataflow, upper)
                made.update(delta(outcome, SINK))
                outcome.release()
                if rng.random() < 0.3:
                    of.store.sweep(())
        dataflow._background_merges.join()
        dataflow._background_merges.settle()
    of.store.sweep(())
    root = of.store.directory
    assert stored_files(root) == live_files(of.store.arrangements())
    dataflow.drop()
    return of.history.as_of, consolidated(made)


def _finer(bounds: Sequence[int]) -> Sequence[int]:
    """A step for each time, up to where the last one ends."""
    return range(bounds[0], bounds[-1] + 1) if bounds[-1] - bounds[0] < 64 else bounds


def _settle(dataflow: RenderedDataflow, rng: random.Random) -> None:
    if rng.random() < 0.5:
        dataflow._background_merges.join()
    if rng.random() < 0.7 and INDEX in dataflow.indexes:
        dataflow.compact(INDEX, Frontier.at(max(dataflow.frontier.encode() - rng.randint(1, 3), 0)))


def _everything_is_large(patch: CheckedPatches, rng: random.Random) -> None:
    patch.setattr(spine, "SMALL_ROWS", 1)
    patch.setattr(merge_policy, "FAN_IN", 2)
    patch.setattr(merge_policy, "STEP_ROWS", rng.choice([1, 2, 6]))
    patch.setattr(merge_policy, "ROWS_PER_ROW", rng.choice([0, 1, 100]))
    patch.setattr(merge_policy, "MAX_BATCHES", rng.choice([3, 64]))
    jobs = random.Random(rng.random())  # merges run on another thread
    patch.setattr(background_merges, "PAUSE_SECONDS", 0.0)
    patch.setattr(background_merges.BackgroundMerges, "_job", lambda _, order: _carried_out(order, jobs))


def _carried_out(order: Path, rng: random.Random) -> None:
    background_merges.run_order(order)
    if rng.random() < 0.3:
        raise RuntimeError("the task's process died after its work")
