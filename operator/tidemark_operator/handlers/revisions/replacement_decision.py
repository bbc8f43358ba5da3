"""What becomes of a Dataflow's revisions: pure decisions, over what is known of all Dataflows of a namespace.

    decide     the spec, and what others are about to replace  ->  Serve, Keep or Replace
    judge      how far the members of a replacement are        ->  take over, or what holds it back

Spec as planned, nothing it imports taken away: what is active serves, and a pending revision is given up (an edit was
reverted, or what took its imports away was). Otherwise a pending revision is kept for as long as it is of this spec, of
this replacement, and of imports that are there. Whichever writes a table that another revision has finished can write
nothing to it: it is replaced with one that writes the next version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_operator.catalogue.registry import DataflowState, HeldBack, Together
from tidemark_operator.catalogue.replacement_closure import as_replaced, is_stale, joins
from tidemark_operator.controller.frontiers.succession import LATELY_MS, Succession
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_protocol.plan.dataflow import ContinualTaskSink, ShardSink


@dataclass(frozen=True)
class Serve:
    """The active revision is of this spec, and what it imports is there, or is needed no more."""


@dataclass(frozen=True)
class Keep:
    """The pending revision is the one that is wanted."""


@dataclass(frozen=True)
class Replace:
    """Another revision is wanted. `joining`: the replacement that it is part of; None: one of its own."""

    joining: Together | None = None


Decision = Serve | Keep | Replace


def decide(state: DataflowState, spec_digest: str, dataflows: Sequence[DataflowState]) -> Decision:
    """`dataflows`: all of the namespace, this one among them."""
    active, pending = state.active, state.pending
    if active is None:
        return Replace()
    if state.is_over:
        return Serve()
    joining = joins(state, dataflows)
    as_planned = active.spec_digest == spec_digest and active.name not in state.outrun and not _gives_way(state)
    if joining is None and as_planned and not is_stale(active.revision, dataflows):
        return Serve()
    if pending is None or pending.mark.spec_digest != spec_digest or pending.mark.name in state.outrun:
        return Replace(joining)
    alone = Together(state.key.name, pending.mark.name)
    if pending.together != (joining or alone):
        return Replace(joining)
    view = as_replaced(dataflows, pending.together)
    return Replace(joining) if is_stale(pending.mark.revision, view) else Keep()


def _gives_way(state: DataflowState) -> bool:
    """Whether what serves was found to be outrun, or stale: nothing else has a revision of the same spec follow it, by
    itself. A new operator has not been told yet why, and would begin with another table each time."""
    active, pending = state.active, state.pending
    if active is None or pending is None or pending.mark.spec_digest != active.spec_digest:
        return False
    return pending.together == Together(state.key.name, pending.mark.name)


def succession(active: DataflowRevision, pending: DataflowRevision) -> Succession:
    """Of two revisions of one Dataflow: whom each export follows, and what both write."""
    before = {e.name: id for e in active.exports if (id := active.export_id(e.name)) is not None}
    names = {id: e.name for e in pending.exports if (id := pending.export_id(e.name)) is not None}
    written = {s.shard_id for e in active.exports if (s := active.view_shard(e.name)) is not None}
    sinks = pending.description.sink_exports
    both = (e.id for e in sinks if isinstance(e.sink, ShardSink) and e.sink.shard.shard_id in written)
    return Succession({id: before[name] for id, name in names.items() if name in before}, frozenset(both))


def cannot_run_beside(active: DataflowRevision, pending: DataflowRevision) -> bool:
    """A continual task that reads the table which its predecessor writes: it can do nothing before it may write."""
    task = pending.description.continual_task
    reads_own = task is not None and isinstance(task.sink, ContinualTaskSink) and task.sink.own is not None
    return reads_own and bool(succession(active, pending).read_only)


@dataclass(frozen=True)
class Member:
    """How far one Dataflow of a replacement is. `obstacle`: why it cannot be planned; `failure`: what replicas say of
    its pending revision, where all of them fail; `waits`: what holds back its planning or installation. `at_once`:
    there is nothing to wait for. `level_ms`: when it was last as far as what serves."""

    name: str
    pending: bool
    obstacle: str = ""
    failure: str = ""
    waits: str = ""
    at_once: bool = False
    hydrated: int = 0
    exports: int = 0
    level_ms: int | None = None


def judge(members: Iterable[Member], now_ms: int) -> HeldBack | None:
    """What holds a replacement back: first what waiting does not mend. None: it may take over."""
    members = list(members)
    for m in members:
        if m.obstacle:
            return HeldBack(f"Dataflow {m.name} cannot be planned on it: {m.obstacle}", failed=True)
    for m in members:
        if m.failure:
            return HeldBack(f"Dataflow {m.name} fails: {m.failure}", failed=True)
    return next((held for m in members if (held := _awaited(m, now_ms)) is not None), None)


def _awaited(m: Member, now_ms: int) -> HeldBack | None:
    if not m.pending:
        return HeldBack(f"Dataflow {m.name} is to be planned anew with it" + (f": {m.waits}" if m.waits else ""))
    if m.at_once:
        return None
    if m.waits:
        return HeldBack(f"Dataflow {m.name} {m.waits}")
    if m.hydrated < m.exports or m.exports == 0:
        return HeldBack(f"Dataflow {m.name} hydrates: {m.hydrated} of {m.exports} exports are hydrated")
    if m.level_ms is None or now_ms - m.level_ms > LATELY_MS:
        return HeldBack(f"Dataflow {m.name} is not as far as the revision that serves")
    return None
