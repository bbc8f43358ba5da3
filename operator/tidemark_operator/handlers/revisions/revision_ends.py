"""The ends of a revision's tables.

sealed       every export is a finished table, and the clock or the inputs agree: no replica computes it
ended        sealed because the end of its spec has passed: no edit of its inputs changes it
superseded   another revision finished a table that this one was to write (frontiers/end_attribution.py). A finished
             table takes no update, so a revision with the next version of the table replaces this one

its table                     pending                     active
not finished                  may take over               writes it
finished by another revision  is planned once more        is planned once more
finished by itself            -                           ended, if the end of its spec has passed
finished, unknown by which    is held back                is neither ended nor sealed: a replica is asked
"""

from __future__ import annotations

from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionEnds
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.as_of import sinces
from tidemark_operator.controller.frontiers.dataflow_end import end_of, has_passed
from tidemark_operator.controller.frontiers.shards import TrackedShard
from tidemark_operator.controller.replicas.excluded_dataflows import tables_of
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.holds.revision_holds import holder_of
from tidemark_operator.handlers.revisions.import_frontiers import import_frontiers
from tidemark_operator.planning.revision import ActiveRevision, view_shards
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.plan.dataflow import DataflowDescription


def note_ends(running: RunningInstance | None, state: DataflowState) -> None:
    """Records which revisions ended or were superseded, and releases the inputs of an active one that ended, also while
    the Dataflow is suspended."""
    if running is None or state.active is None:
        return
    if not any(_has_finished_table(running, mark) for mark in state.marks):
        state.ends = RevisionEnds()  # most tables are not finished: nothing more need be asked
        return
    superseded = frozenset(mark.name for mark in state.marks if is_superseded(running, state, mark))
    ended = has_ended(running, state.active.revision.description) and not is_in_question(running, state, state.active)
    state.ends = RevisionEnds(state.active.name if ended else "", superseded)
    if ended:
        running.shards.release(holder_of(state, state.active))


def is_superseded(running: RunningInstance, state: DataflowState, mark: ActiveRevision) -> bool:
    """Whether another revision finished a table that this one was to write. A revision that has not taken over yet has
    finished nothing. A continual task is superseded if its table is finished and its inputs are not: its term tells
    nothing, since the table may have the term without the task having written."""
    known, description = _written(running, mark), mark.revision.description
    if description.continual_task is not None:
        return any(map(_is_reported_finished, known)) and not _may_have_ended(running, description)
    beside = None if state.active is None or mark is state.active else state.active.revision.description
    others = frozenset() if beside is None else {shard.shard_id for shard in view_shards(beside)}
    terms = (shard.end_term for shard in known if shard.id in inherited(state, mark))
    before = any(term is not None and term < mark.revision.writer_term for term in terms)
    return before or any(shard.id in others and _is_finished(shard) for shard in known)


def is_in_question(running: RunningInstance, state: DataflowState, mark: ActiveRevision) -> bool:
    """Whether the revision is superseded, or may be: a replica is asked then under which term its tables ended."""
    if is_superseded(running, state, mark):
        return True
    if mark.revision.description.continual_task is not None:
        return False
    known = (shard for shard in _written(running, mark) if shard.id in inherited(state, mark))
    unknown = [shard for shard in known if _is_finished(shard) and shard.end_term is None]
    for shard in unknown:
        running.shards.request_end_term(shard.id)
    return bool(unknown)


def inherited(state: DataflowState, mark: ActiveRevision) -> frozenset[ShardId]:
    """Tables that another writer may have written: an earlier revision, or an earlier Dataflow. Tables that the
    revision keeps as it found them are not among them."""
    written = (shard.shard_id for shard in view_shards(mark.revision.description))
    own = f"{state.uid}/"
    return frozenset(id for id in written if mark.number > 1 or not id.startswith(own)) - {*mark.revision.kept}


def is_sealed(running: RunningInstance, description: DataflowDescription) -> bool:
    """Whether every export is a table that is known to be finished, and the dataflow may have come to its end."""
    found = [running.shards.frontiers(shard) for shard in tables_of(description)]
    are_finished = bool(found) and all(known is not None and known.upper.is_empty for known in found)
    return are_finished and running.may_end(description)


def may_be_finished(running: RunningInstance, description: DataflowDescription) -> bool:
    """Whether every table that it exports is finished, or not known yet."""
    found = [running.shards.frontiers(shard) for shard in tables_of(description)]
    return bool(found) and all(known is None or known.upper.is_empty for known in found)


def has_ended(running: RunningInstance, description: DataflowDescription) -> bool:
    """Whether it is sealed by the end of its own spec, and not only because its inputs are finished: an edit of the
    inputs cannot change it."""
    return has_passed(end_of(description), now_ms()) and is_sealed(running, description)


def has_come_to_its_end(
    running: RunningInstance, registry: Registry, state: DataflowState, description: DataflowDescription
) -> bool:
    """Whether a new revision with this description has nothing to write: the end of its spec has passed, or it is a
    continual task whose inputs are finished. (A view over finished inputs can still be computed by its new SQL.)

    Raises:
        Waiting: an input is unknown.
    """
    if description.continual_task is None:
        return has_passed(end_of(description), now_ms())
    if running.may_end(description):
        return True
    sinces(import_frontiers(running, registry, state, description), first=True)
    return False


def _has_finished_table(running: RunningInstance, mark: ActiveRevision) -> bool:
    ids = (shard.shard_id for shard in view_shards(mark.revision.description))
    return any(_is_reported_finished(shard) for id in ids if (shard := running.shards.get(id)) is not None)


def _written(running: RunningInstance, mark: ActiveRevision) -> list[TrackedShard]:
    """Tables that it writes, as far as they are known, without those that it keeps as it found them."""
    ids = (s.shard_id for s in view_shards(mark.revision.description) if s.shard_id not in mark.revision.kept)
    return [shard for id in ids if (shard := running.shards.get(id)) is not None]


def _is_reported_finished(shard: TrackedShard) -> bool:
    return shard.end_term is not None or _is_finished(shard)


def _is_finished(shard: TrackedShard) -> bool:
    return shard.frontiers is not None and shard.frontiers.upper.is_empty


def _may_have_ended(running: RunningInstance, description: DataflowDescription) -> bool:
    """Whether it has come to its end, or the frontier of one of its inputs is unknown."""
    unknown = (None, Frontier.minimum())
    shards = (
        f.upper if (f := running.shards.frontiers(i.shard.shard_id)) else None for i in description.source_imports
    )
    indexes = (c.write if (c := running.index(i.id)) else None for i in description.index_imports)
    return running.may_end(description) or any(upper in unknown for upper in (*shards, *indexes))
