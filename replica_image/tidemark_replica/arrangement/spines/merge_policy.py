"""The merge policy: which merges a step does itself, and which run in the background.

    plan_merges ──> at most STEP_ROWS rows ──> at the end of the step that made them due
                └─> more ────────────────────> in the background, one at a time; the step merges the small tail alone

So no step pays for a large merge, and batches below STEP_ROWS keep their shape whatever runs in the background. Batches
in a background merge are left alone. If an arrangement has more than MAX_BATCHES batches all the same,
steps merge everything: they slow down, but the number of batches stays bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.spine import FAN_IN, Merge, plan_merges

STEP_ROWS = 1 << 13
"""Rows that a stage merges at the end of a step, over all arrangements, plus ROWS_PER_ROW per row written."""
ROWS_PER_ROW = 8

MAX_BATCHES = 64
"""An arrangement with more batches is merged in the step, whatever its size."""


def merges_in_step(manifests: Iterable[Manifest], busy: Collection[str], written: int) -> list[Merge]:
    """The merges for the end of a step that wrote `written` rows. `busy`: files in a background merge."""
    budget = STEP_ROWS + ROWS_PER_ROW * written
    chosen: list[Merge] = []
    for merge in sorted(_fitting(manifests, busy, budget), key=_urgency):
        budget -= rows_of(merge)
        if budget >= 0 or not chosen or len(merge.batches) > MAX_BATCHES:
            chosen.append(merge)
    return chosen


def background_merge(manifest: Manifest, most_bytes: int | None = None) -> Merge | None:
    """The first merge that is too large for a step and reads at most `most_bytes` (None: any number)."""
    if manifest.rows <= STEP_ROWS:
        return None
    large = (m for m in plan_merges(manifest) if rows_of(m) > STEP_ROWS)
    return next((m for m in large if most_bytes is None or bytes_of(m) <= most_bytes), None)


def rows_of(merge: Merge) -> int:
    """The rows that a merge reads."""
    return sum(b.rows for b in merge.batches)


def bytes_of(merge: Merge) -> int:
    """The bytes that a merge reads, and writes at most."""
    return sum(b.bytes for b in merge.batches)


def _fitting(manifests: Iterable[Manifest], busy: Collection[str], budget: int) -> Iterator[Merge]:
    for manifest in manifests:
        for merge in plan_merges(_idle(manifest, busy)):
            tail = _newest(merge.batches, budget)
            if len(tail) == len(merge.batches) or len(merge.batches) > MAX_BATCHES:
                yield merge
            elif len(tail) >= FAN_IN:
                yield replace(merge, batches=tail)


def _idle(manifest: Manifest, busy: Collection[str]) -> Manifest:
    """The manifest without busy batches and older ones: a merge needs neighbours."""
    after = max((at + 1 for at, batch in enumerate(manifest.batches) if batch.file in busy), default=0)
    return replace(manifest, batches=manifest.batches[after:]) if after else manifest


def _newest(batches: tuple[BatchRef, ...], budget: int) -> tuple[BatchRef, ...]:
    """The newest batches, as many as have at most `budget` rows together."""
    begin, rows = len(batches), 0
    while begin > 0 and (rows := rows + batches[begin - 1].rows) <= budget:
        begin -= 1
    return batches[begin:]


def _urgency(merge: Merge) -> tuple[int, str]:
    """Sorts merges with more batches first."""
    return -len(merge.batches), merge.arrangement
