"""A revision whose table another one has finished (frontiers/end_attribution.py): it gives way to one with the next
version.

its table               pending                  serves
not finished            may take over            writes it
finished by another     planned once more        planned once more
finished by itself                               is over, where its end has passed
finished, not known     is held back             neither is over nor sealed: a replica is asked
"""

from __future__ import annotations

from tidemark_operator.catalogue.registry import DataflowState
from tidemark_operator.controller.frontiers.shards import Shard
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.planning.revision import ActiveRevision, view_shards
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ShardId
from tidemark_protocol.plan.dataflow import DataflowDescription


def is_outrun(running: RunningInstance, state: DataflowState, mark: ActiveRevision) -> bool:
    """Whether another revision has finished a table that this one was to write: what stands there is not what this one
    makes, and can be changed no more. One that has not taken over yet has finished nothing. A task has nothing more to
    do where it has come to an end too; its term says nothing, as it may be in the table without its having written."""
    known, description = _written(running, mark), mark.revision.description
    if description.continual_task is not None:
        return any(map(_is_told, known)) and not _may_have_ended(running, description)
    beside = None if state.active is None or mark is state.active else state.active.revision.description
    others = frozenset() if beside is None else {shard.shard_id for shard in view_shards(beside)}
    terms = (shard.ended_under for shard in known if shard.id in inherited(state, mark))
    before = any(term is not None and term < mark.revision.writer_term for term in terms)
    return before or any(shard.id in others and _is_finished(shard) for shard in known)


def is_in_question(running: RunningInstance, state: DataflowState, mark: ActiveRevision) -> bool:
    """Whether it was outrun, or may have been: then it is asked who has finished its table."""
    if is_outrun(running, state, mark):
        return True
    if mark.revision.description.continual_task is not None:
        return False
    known = (shard for shard in _written(running, mark) if shard.id in inherited(state, mark))
    unknown = [shard for shard in known if _is_finished(shard) and shard.ended_under is None]
    for shard in unknown:
        running.shards.ask_whose_end(shard.id)
    return bool(unknown)


def inherited(state: DataflowState, mark: ActiveRevision) -> frozenset[ShardId]:
    """Tables that others may have written: revisions before it, or an earlier Dataflow; but what it was to keep as it
    found it."""
    written = (shard.shard_id for shard in view_shards(mark.revision.description))
    own = f"{state.uid}/"
    return frozenset(id for id in written if mark.number > 1 or not id.startswith(own)) - {*mark.revision.kept}


def may_be_told(running: RunningInstance, mark: ActiveRevision) -> bool:
    """Whether any of its tables is said to be finished: most are not, and nothing need be asked of their revisions."""
    ids = (shard.shard_id for shard in view_shards(mark.revision.description))
    return any(_is_told(shard) for id in ids if (shard := running.shards.get(id)) is not None)


def _written(running: RunningInstance, mark: ActiveRevision) -> list[Shard]:
    """As far as they are known; but what it was to keep as it found it."""
    ids = (s.shard_id for s in view_shards(mark.revision.description) if s.shard_id not in mark.revision.kept)
    return [shard for id in ids if (shard := running.shards.get(id)) is not None]


def _is_told(shard: Shard) -> bool:
    return shard.ended_under is not None or _is_finished(shard)


def _is_finished(shard: Shard) -> bool:
    return shard.frontiers is not None and shard.frontiers.upper.is_empty


def _may_have_ended(running: RunningInstance, description: DataflowDescription) -> bool:
    """Also where it is not known how far its inputs are."""
    unknown = (None, Frontier.minimum())
    shards = (
        f.upper if (f := running.shards.frontiers(i.shard.shard_id)) else None for i in description.source_imports
    )
    indexes = (c.write if (c := running.index(i.id)) else None for i in description.index_imports)
    return running.may_end(description) or any(upper in unknown for upper in (*shards, *indexes))
