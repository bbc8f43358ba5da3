"""The targets of peeks: indexes of installed dataflows, and shards.

An index is readable from its export's since on, which is never before the arrangement's.

    rows of given keys of an index, as they are    lookups: read together (lookup_batches.py)
    everything else                                peeks: a whole index or table, expressions, perhaps a Spark job

Each has threads of its own, so that no lookup waits until a table is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemark_protocol.messages.commands import Peek, ShardTarget
from tidemark_protocol.messages.responses import PeekRows
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.events.jobs import Job, Outcome, Pool
from tidemark_replica.peek.lookup_batches import LookupBatches, ReadTogether
from tidemark_replica.peek.peek_queue import Readable
from tidemark_replica.peek.peek_reader import AnswerLimits
from tidemark_replica.peek.result_stash import StashedResult
from tidemark_replica.shards.shards import ShardWatch

Read = Callable[[Peek, AnswerLimits, Callable[[], bool]], PeekRows | StashedResult]


def _at_once(run: Callable[[], None]) -> None:
    run()


class InstalledPeekTargets:
    """The targets of peeks that are installed. The command loop calls them; `read` runs on a pool: that of lookups, or
    that of other peeks."""

    def __init__(
        self,
        dataflows: InstalledDataflows,
        watch: ShardWatch,
        lookup_jobs: Pool,
        peek_jobs: Pool,
        read: Read,
        read_together: ReadTogether,
        later: Callable[[Callable[[], None]], None] = _at_once,
    ) -> None:
        """`read`: one peek; `read_together`: several lookups; `later`: calls a function once the events that wait now
        are handled."""
        self._dataflows, self._watch, self._read, self._peek_jobs = dataflows, watch, read, peek_jobs
        self._lookups = LookupBatches(lookup_jobs, read, read_together, later)
        self._wanted: dict[str, Peek] = {}
        """The peeks that are being read. A thread stops reading a peek that is not here any more."""

    def readable(self, peek: Peek) -> Readable | str | None:
        if isinstance(peek.target, ShardTarget):
            return self._readable_shard(peek, peek.target)
        dataflow = self._dataflows.find(peek.target.id)
        if dataflow is None:
            return f"{peek.target.id} is not an index of this replica, or was dropped"
        if dataflow.refusal is not None:
            return f"{peek.target.id} cannot be read: {dataflow.refusal}"
        if dataflow.outdated is not None and dataflow.outdated.attempts:
            return f"{peek.target.id} cannot be read: {dataflow.outdated.message}"
        return Readable(dataflow.exports[peek.target.id].since, dataflow.processed)

    def read(self, peek: Peek, limits: AnswerLimits, done: Callable[[Outcome[PeekRows | StashedResult]], None]) -> Job:
        self._wanted[peek.uuid] = peek
        stopped = partial(self._is_unwanted, peek)
        if _is_lookup(peek):
            return self._lookups.read(peek, limits, stopped, done)
        return self._peek_jobs.submit(f"peek {peek.uuid}", lambda: self._read(peek, limits, stopped), done)

    def forget(self, peek: Peek) -> None:
        if self._wanted.pop(peek.uuid, None) is not None:
            self._lookups.forget(peek)
        self._watch.unfollow(("peek", peek.uuid))

    def _is_unwanted(self, peek: Peek) -> bool:
        return self._wanted.get(peek.uuid) is not peek

    def _readable_shard(self, peek: Peek, target: ShardTarget) -> Readable | str | None:
        owner = ("peek", peek.uuid)
        self._watch.follow(target.shard.shard_id, target.shard.location, owner)
        shard = self._watch.state(target.shard.shard_id)
        if shard is None:
            return None
        if shard.error is not None or not shard.exists:
            return f"the shard of {target.id} cannot be read: {shard.error or 'it does not exist'}"
        return Readable(shard.since, shard.upper)


def _is_lookup(peek: Peek) -> bool:
    """Whether the peek reads rows of given keys of an index and computes nothing."""
    computes = peek.mfp.expressions or peek.mfp.predicates
    return not isinstance(peek.target, ShardTarget) and peek.literals is not None and not computes
