"""The revision that finished a table: the one that is to write it, or one before it.

    r1   writes the table under term 6    ─────────────────► finished, under 6      just before r2 may write
    r2   continues it, under term 7       ──────────────────────────               the table holds r1's rows

A finished table is never written again, so its last term names the revision that finished it. Where others may have
written the table before, its end counts only once a replica has reported that term. A continual task continues from
what the table holds, so any end of the table is its end, where the task can have reached it too.
"""

from __future__ import annotations

from typing import Protocol

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.plan.dataflow import DataflowDescription


class Inheriting(Protocol):
    """A dataflow. `inherited`: tables that other revisions may have written, under terms below `term`; `outrun`: one
    of those has finished such a table."""

    owner: str
    description: DataflowDescription
    inherited: frozenset[ShardId]
    term: WriterTerm
    outrun: bool


class EndAttribution:
    """Decides claims of collections that a replica reports as finished."""

    def __init__(self, shards: ShardBook) -> None:
        self._shards = shards
        self._claimed: set[GlobalId] = set()
        self._outrun: list[str] = []

    def conclude(self, dataflow: Inheriting, collection: Collection, *, may_end: bool) -> bool:
        """A replica reports that an export is finished. Return whether this dataflow finished it; else the claim is
        kept. `may_end`: whether the dataflow can have come to its end."""
        collection.claimed_end = False
        if collection.dropped or (collection.write is not None and collection.write.is_empty):
            return False
        if self._is_own(dataflow, collection, may_end):
            collection.write = Frontier.empty()
            return True
        self._claimed.add(collection.id)
        return False

    def claimed(self) -> set[GlobalId]:
        """Return the undecided claims and clear them; the caller looks at each again."""
        found, self._claimed = self._claimed, set()
        return found

    def _is_own(self, dataflow: Inheriting, collection: Collection, may_end: bool) -> bool:
        """Whether the end is this dataflow's. Where the term is not known, a replica is asked for it."""
        is_task = dataflow.description.continual_task is not None
        if collection.shard is None or collection.shard not in dataflow.inherited or (is_task and may_end):
            return True
        shard = self._shards.get(collection.shard)
        term = shard.end_term if shard is not None else None
        is_own = term is not None and term >= dataflow.term and not is_task
        if term is None:
            self._shards.request_end_term(collection.shard)
        elif not is_own and not dataflow.outrun:
            dataflow.outrun = True
            self._outrun.append(dataflow.owner)
        return is_own

    def outrun(self) -> list[str]:
        """Owners of dataflows one of whose tables another revision has finished, since the last call; clears the
        list."""
        found, self._outrun = self._outrun, []
        return found
