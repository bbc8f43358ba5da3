"""The revision of a Dataflow that is wanted, and whether a replacement may take over. Pure functions.

    decide     the spec, and what other Dataflows are about to replace  ->  Serve, Keep or Replace
    judge      how far the members of a replacement are                 ->  None (take over), or the obstacle

Serve: the active revision is of this spec and its imports exist, so a pending one is given up (the edit was reverted,
or the edit that took its imports away was). Keep: the pending revision is of this spec and this replacement, and its
imports exist. A superseded revision, active or pending, is replaced by one that writes the next version of its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle, ReplacementId
from tidemark_operator.catalogue.replacement_closure import as_replaced, is_stale, joins
from tidemark_operator.controller.frontiers.succession import LATELY_MS, Succession
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_protocol.plan.dataflow import ContinualTaskSink, ShardSink


@dataclass(frozen=True)
class Serve:
    """The active revision is the one that is wanted."""


@dataclass(frozen=True)
class Keep:
    """The pending revision is the one that is wanted."""


@dataclass(frozen=True)
class Replace:
    """A new revision is wanted. `joining`: the replacement that it will be part of; None: one of its own."""

    joining: ReplacementId | None = None


Decision = Serve | Keep | Replace


def decide(state: DataflowState, dataflows: Sequence[DataflowState]) -> Decision:
    """`dataflows`: all Dataflows of the namespace, this one among them."""
    active, pending = state.active, state.pending
    if active is None:
        return Replace()
    if state.has_ended:
        return Serve()
    joining = joins(state, dataflows)
    wanted, superseded = state.spec.digest, state.ends.superseded
    as_planned = active.spec_digest == wanted and active.name not in superseded and not _is_followed(state)
    if joining is None and as_planned and not is_stale(active.revision, dataflows):
        return Serve()
    if pending is None or pending.mark.spec_digest != wanted or pending.mark.name in superseded:
        return Replace(joining)
    alone = ReplacementId(state.key.name, pending.mark.name)
    if pending.replacement != (joining or alone):
        return Replace(joining)
    view = as_replaced(dataflows, pending.replacement)
    return Replace(joining) if is_stale(pending.mark.revision, view) else Keep()


def _is_followed(state: DataflowState) -> bool:
    """Whether a pending revision of the same spec, and of no other replacement, follows the active one. Only a
    superseded or a stale revision is followed by such a one. A new operator does not know yet which of the two it is:
    without this it would plan another revision, with another table, at each start."""
    active, pending = state.active, state.pending
    if active is None or pending is None or pending.mark.spec_digest != active.spec_digest:
        return False
    return pending.replacement == ReplacementId(state.key.name, pending.mark.name)


def succession(active: DataflowRevision, pending: DataflowRevision) -> Succession:
    """The succession of a pending revision's exports to those of the active one: the predecessor of each, and the
    exports whose table both write."""
    before = {e.name: id for e in active.exports if (id := active.export_id(e.name)) is not None}
    names = {id: e.name for e in pending.exports if (id := pending.export_id(e.name)) is not None}
    written = {s.shard_id for e in active.exports if (s := active.view_shard(e.name)) is not None}
    sinks = pending.description.sink_exports
    both = (e.id for e in sinks if isinstance(e.sink, ShardSink) and e.sink.shard.shard_id in written)
    return Succession({id: before[name] for id, name in names.items() if name in before}, frozenset(both))


def cannot_run_beside(active: DataflowRevision, pending: DataflowRevision) -> bool:
    """Whether the pending revision is a continual task that reads its own table, which the active one writes: it can
    compute nothing before it may write."""
    task = pending.description.continual_task
    reads_own = task is not None and isinstance(task.sink, ContinualTaskSink) and task.sink.own is not None
    return reads_own and bool(succession(active, pending).read_only)


@dataclass(frozen=True)
class ReplacementMember:
    """The progress of one Dataflow of a replacement.

    `pending`: whether it has the revision that takes over. `obstacle`: why that cannot be planned or installed;
    `waits`: what its planning or installation waits for. `failure`: the error of its pending revision, if it fails on
    every replica. `at_once`: it need not be hydrated first. `hydrated`, `exports`: how many. `level_ms`: when its write
    frontier was last level with the active revision's."""

    name: str
    pending: bool
    obstacle: str = ""
    failure: str = ""
    waits: str = ""
    at_once: bool = False
    hydrated: int = 0
    exports: int = 0
    level_ms: int | None = None


def judge(members: Iterable[ReplacementMember], now_ms: int) -> Obstacle | None:
    """The obstacle of a replacement, failures first; None if it may take over."""
    members = list(members)
    for m in members:
        if m.obstacle:
            return Obstacle(f"Dataflow {m.name} cannot be planned on it: {m.obstacle}", failed=True)
    for m in members:
        if m.failure:
            return Obstacle(f"Dataflow {m.name} fails: {m.failure}", failed=True)
    return next((held for m in members if (held := _awaited(m, now_ms)) is not None), None)


def _awaited(m: ReplacementMember, now_ms: int) -> Obstacle | None:
    if not m.pending:
        return Obstacle(f"Dataflow {m.name} is to be planned anew with it" + (f": {m.waits}" if m.waits else ""))
    if m.at_once:
        return None
    if m.waits:
        return Obstacle(f"Dataflow {m.name} {m.waits}")
    if m.hydrated < m.exports or m.exports == 0:
        return Obstacle(f"Dataflow {m.name} hydrates: {m.hydrated} of {m.exports} exports are hydrated")
    if m.level_ms is None or now_ms - m.level_ms > LATELY_MS:
        return Obstacle(f"Dataflow {m.name} is not as far as the revision that serves")
    return None
