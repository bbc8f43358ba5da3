"""The inputs of a step: parts of the imported shards.

    hydration   snapshot_parts(as_of) ++ listen(as_of + 1, upper)     leased until the step has ended
    afterwards  listen(lower, upper)

A step goes on from what the earlier ones read. Where another program has changed a table meanwhile, that is not the
table's past any more: `ForeignCommit`.

A hydration may read for longer than vacuum's grace period, so it holds leases. Later steps are short; their parts are
listed again after a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidemark_persist import FilePart, Lease, PersistError
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import SourceImport
from tidemark_replica.dataflow.self_read_input import SelfReadInput
from tidemark_replica.shards.shards import ShardHandles

LOG = logging.getLogger(__name__)
Parts = dict[GlobalId, list[FilePart]]


class StepInputs:
    """The inputs of one dataflow, one step at a time. All methods except `step_cached` run on a pool."""

    def __init__(
        self, imports: Sequence[SourceImport], handles: ShardHandles, own: SelfReadInput | None = None
    ) -> None:
        self._imports, self._handles, self._self_read = tuple(imports), handles, own
        self._leases: list[Lease] = []
        self._epochs: dict[GlobalId, int] = {}
        """The epochs of the shards, as of the beginning of the hydration."""

    def check(self) -> None:
        """Raises ForeignCommit where another program is known to have changed a table since the hydration. Never
        waits."""
        for source in self._imports:
            reader = self._handles.cached_reader(source.shard.location, source.shard.shard_id)
            if reader is not None:
                reader.check_epoch(self._epochs.get(source.id))

    def hydration(self, as_of: int, upper: int) -> Parts:
        """The contents at `as_of` and the updates up to `upper`. Their files are leased until `ended`. Raises
        PersistError and OSError."""
        parts = {}
        for source in self._imports:
            shard = self._handles.reader(source.shard.location, source.shard.shard_id)
            epoch = self._epochs[source.id] = shard.epoch
            self._leases.append(shard.lease())
            parts[source.id] = [*shard.snapshot_parts(as_of), *shard.listen(as_of + 1, upper, epoch)]
        if self._self_read is not None:
            parts[self._self_read.id] = self._self_read.hydration(upper, self._leases)
        return parts

    def step(self, lower: int, upper: int) -> Parts:
        """The updates of [lower, upper). Raises PersistError and OSError."""
        readers = {s.id: self._handles.reader(s.shard.location, s.shard.shard_id) for s in self._imports}
        parts = {id: shard.listen(lower, upper, self._epochs.get(id)) for id, shard in readers.items()}
        if self._self_read is not None:
            parts[self._self_read.id] = self._self_read.step(lower, upper)
        return parts

    def step_cached(self, lower: int, upper: int) -> Parts | None:
        """Like `step`, from cached states of the shards, on any thread. None where they do not cover [lower, upper)."""
        parts: Parts = {}
        for source in self._imports:
            shard = self._handles.cached_reader(source.shard.location, source.shard.shard_id)
            listed = None if shard is None else shard.listen_cached(lower, upper, self._epochs.get(source.id))
            if listed is None:
                return None
            parts[source.id] = listed
        return None if self._self_read is not None else parts

    def note_failure(self, error: Exception) -> None:
        """The step has failed: a file of a shard that this process writes may be lost."""
        for source in self._imports:
            self._handles.note_failed_read(source.shard.location, error)

    def end_step(self) -> list[Lease]:
        """Ends the step; returns its leases, for `release`."""
        leases, self._leases = self._leases, []
        return leases


def release(leases: Sequence[Lease]) -> None:
    """Releases the leases. One that cannot be released expires."""
    for lease in leases:
        try:
            lease.release()
        except (PersistError, OSError) as error:
            LOG.warning("a lease could not be released and stays until it expires: %s", error)
