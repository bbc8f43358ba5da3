"""Other ways through the same history, which must not show: buckets, compaction, a restart in between.

plain       one bucket, nothing compacted             the updates that the oracle has checked
disturbed   eight buckets, compacted after each step  the same updates; the index reads the same where it can
restarted   dropped at a step, built anew             at its as_of the contents, from there on the same updates
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from tests.oracle.world import INDEX, SINK, Updates, World, consolidated, contents, counted, delta
from tidemark_protocol.dataflow import DataflowDescription
from tidemark_protocol.frontier import Frontier
from tidemark_replica.arrangement.batch import BatchCache
from tidemark_replica.arrangement.manifest import Manifest
from tidemark_replica.arrangement.trace import Trace
from tidemark_replica.render import RenderedDataflow

BUCKETS = 8


def use_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrangements that are made from now on have several buckets."""
    monkeypatch.setattr(Manifest, "empty", staticmethod(partial(Manifest.empty, buckets=BUCKETS)))


def run_compacted(of: World, description: DataflowDescription, bounds: Sequence[int]) -> Updates:
    """Steps after each of which the index lets go of all but the last time; it is read there every time."""
    dataflow = of.build(description)
    made: Updates = Counter()
    try:
        for upper in bounds:
            outcome = of.step(dataflow, upper)
            made.update(delta(outcome, SINK))
            outcome.release()
            dataflow.compact(INDEX, Frontier.at(upper - 1))
            of.store.sweep(())
            assert read_index(of, dataflow, upper - 1) == contents(made, upper - 1)
    finally:
        dataflow.drop()
    return consolidated(made)


def run_restarted(of: World, description: DataflowDescription, bounds: Sequence[int]) -> tuple[int, Updates]:
    """Steps up to about the middle, then another dataflow that begins there: its as_of and its updates."""
    middle = bounds[(len(bounds) - 1) // 2] - 1
    first = of.build(description)
    of.step(first, middle + 1).release()
    first.drop()
    of.store.sweep(())
    again = description.with_as_of(Frontier.at(middle))
    return middle, of.run(again, [upper for upper in bounds if upper > middle + 1] or [middle + 1])


def read_index(of: World, dataflow: RenderedDataflow, time: int) -> tuple[Counter[tuple[object, ...]], Counter[str]]:
    """The rows and errors that the index holds at a time."""
    trace = Trace(dataflow.indexes[INDEX].manifest, BatchCache(of.store.directory))
    return contents(consolidated(counted(trace.rows_at(time))), time)


def from_time(updates: Updates, time: int) -> Updates:
    """What is seen from a time on: contents there, and later updates."""
    advanced: Updates = Counter()
    for (row, error, at), diff in updates.items():
        advanced[row, error, max(at, time)] += diff
    return consolidated(advanced)
