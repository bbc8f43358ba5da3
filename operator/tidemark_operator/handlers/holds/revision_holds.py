"""Holds on the inputs of revisions that are stored and not installed.

A hold is taken as soon as the revision is known, and goes when the revision is installed: the instance then has holds
of its own. So nothing that the revision will read is compacted between an operator's start and the installation, while
the Dataflow is suspended, or while an index that it imports does not exist."""

from __future__ import annotations

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.planning.revision import ActiveRevision, view_shards
from tidemark_protocol.frontier import Frontier


def hold_inputs(book: ShardBook, state: DataflowState, only: ActiveRevision | None = None) -> None:
    """Holds what its revisions read, or one of them, at its present since. A revision that ended reads nothing."""
    for mark in state.marks if only is None else (only,):
        description, holder = mark.revision.description, holder_of(state, mark)
        for shard in view_shards(description):
            book.register(shard.shard_id, shard.location, state.spec.lag_ms)
        if mark.name == state.ends.ended:
            continue
        if description.continual_task is not None:  # it goes on from the contents of its own table
            for shard in view_shards(description):
                book.hold(shard.shard_id, holder, Frontier.minimum())
        for source in description.source_imports:
            book.register(source.shard.shard_id, source.shard.location)
            book.hold(source.shard.shard_id, holder, Frontier.minimum())


def retire(book: ShardBook, state: DataflowState, old: ActiveRevision) -> None:
    """Releases the hold of a revision that is not wanted any more, and forgets tables that no other revision writes."""
    book.release(holder_of(state, old))
    kept = {s.shard_id for mark in state.marks if mark is not old for s in view_shards(mark.revision.description)}
    for shard in view_shards(old.revision.description):
        if shard.shard_id not in kept:
            book.forget(shard.shard_id)


def holder_of(state: DataflowState, mark: ActiveRevision) -> str:
    return f"stored {state.installation(mark)}"
