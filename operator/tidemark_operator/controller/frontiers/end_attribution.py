"""What is finished, and whether the end of a table is that of the revision which is to write it.

    r1   writes the table under term 6    ─────────────────► finished, under 6      just before r2 may write
    r2   is to go on with it, under 7     ──────────────────────────               it holds what r1 has made of it

Nobody writes to a table that is finished: its last term says by whom it was. Where others may have written it before,
an end is believed only once a replica has told that term. A continual task goes on from what is there: for it an end is
an end, where it can have come to it too.
"""

from __future__ import annotations

from typing import Protocol

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.plan.dataflow import DataflowDescription


class Inheriting(Protocol):
    """A dataflow. `inherited`: tables that others may have written before, under terms below its own, `term`; `outrun`:
    they have finished one."""

    owner: str
    description: DataflowDescription
    inherited: frozenset[ShardId]
    term: WriterTerm
    outrun: bool


class EndAttribution:
    def __init__(self, shards: ShardBook) -> None:
        self._shards = shards
        self._claimed: set[GlobalId] = set()
        self._outrun: list[str] = []

    def conclude(self, dataflow: Inheriting, collection: Collection, *, may_end: bool) -> bool:
        """A replica reports that an export is finished. Return whether this dataflow finished it; else it is one of
        those `claimed`. `may_end`: whether the dataflow can have come to its end."""
        collection.claimed_end = False
        if collection.dropped or (collection.write is not None and collection.write.is_empty):
            return False
        if self._is_own(dataflow, collection, may_end):
            collection.write = Frontier.empty()
            return True
        self._claimed.add(collection.id)
        return False

    def claimed(self) -> set[GlobalId]:
        """What is said to be finished, and was not known to be: to be looked at again."""
        found, self._claimed = self._claimed, set()
        return found

    def _is_own(self, dataflow: Inheriting, collection: Collection, may_end: bool) -> bool:
        """Where that is in question, and is not known, it is to be told."""
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
        """Those of which it has become known since that another revision has finished a table of theirs."""
        found, self._outrun = self._outrun, []
        return found
