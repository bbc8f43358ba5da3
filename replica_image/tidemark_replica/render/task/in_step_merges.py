"""The merges that an attempt of a stage does itself, after its operators.

At hydration all merges that are due: one long step more does not delay others. Later only merges that are small beside
the step; the others run in the background (`execution/background_merges.py`). In a dataflow's only step none: what it
has written is an index that is peeked once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.merge_policy import merges_in_step
from tidemark_replica.arrangement.spines.spine import Merge, plan_merges
from tidemark_replica.arrangement.step import StepContext, merge
from tidemark_replica.render.stepped_dataflow import Merged
from tidemark_replica.render.task.timing import OperatorClock

Written = Mapping[ArrangementId, Sequence[BatchRef]]


def in_step_merges(
    context: StepContext, busy: frozenset[str], written: Written, clock: OperatorClock
) -> Iterator[Merged]:
    """Carry out the merges one by one, and yield them. `busy`: files in a background merge."""
    for task in _merges_to_do(context, busy, written):
        began = time.perf_counter()
        result = merge(task, context.manifest(task.arrangement).layout, context.cache, context.writer)
        clock.merged(task.arrangement, time.perf_counter() - began)
        yield Merged(task, result)


def _merges_to_do(context: StepContext, busy: frozenset[str], written: Written) -> list[Merge]:
    """The merges of the arrangements to which the task has written."""
    manifests = [_extended(context, context.manifest(a), refs) for a, refs in written.items()]
    if context.is_only_step:
        return []
    if context.is_hydration:
        return [task for manifest in manifests for task in plan_merges(manifest)]
    return merges_in_step(manifests, busy, sum(b.rows for refs in written.values() for b in refs))


def _extended(context: StepContext, manifest: Manifest, refs: Sequence[BatchRef]) -> Manifest:
    """The manifest with the batches just written, as the commit leaves it. In an exchanged step, a task merges only its
    own batches."""
    mine = manifest if context.share.of == 1 else replace(manifest, batches=())
    moved = mine.append(refs, context.lower, context.upper)
    is_state = manifest.arrangement in context.writer.states
    return moved.allow_compaction(context.upper - 1) if is_state else moved
