"""Ingests one source tick by tick: recovers the bindings so far, then mints a binding and appends its data, again and
again.

           remap upper ─────────────┐
    ... ──●────────●────────●───────┤  bindings          recover: bindings a table lacks are staged and appended
    table a ───────────────────────►|                    tick:    mint at T, append to every table, all uppers T + 1
    table b ───────►|  (died here)

No thread and no clock: the caller gives the time. Every write carries the term, and every step may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tidemark_persist import DIFF, TIME, Shard, ShardWriters, StagedFile, UpperMismatch, read_part
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription
from tidemark_replica.storage.binding_names import TABLE, BindingNames, names_in
from tidemark_replica.storage.errors import IngestionError, SourceUnusable
from tidemark_replica.storage.leftovers import FilesOf, Leftovers
from tidemark_replica.storage.source import Source, SourceShards
from tidemark_replica.storage.staged_bindings import files_beside
from tidemark_replica.values.arrow_types import arrow_schema

AHEAD_MS = 10_000
"""A static table's upper runs this far ahead, so that it needs a commit only this often."""
REMAP_SINCE_LAG_MS = 60_000
"""The remap's since trails by this much, so that the cost of recovery does not grow with the age of the source."""


class ShardMoved(IngestionError):
    """Another writer of the same term moved a shard; the ingestion starts again from the shard's state."""


class Ingester:
    """Ingests one source under one writer term."""

    def __init__(
        self,
        description: IngestionDescription,
        term: WriterTerm,
        source: Source,
        shards: ShardWriters,
        leftovers: Leftovers | None = None,
    ) -> None:
        """`leftovers`: of the ingesters of this ingestion before, in this process."""
        self._leftovers = leftovers or Leftovers()
        self._name, self._term, self._source = description.name, term, source
        self._remap = shards.open(description.remap_location, source.remap_schema, shard_id=description.remap_id)
        self._tables = [(table, _open(shards, table.shard)) for table in description.tables]
        self._names = BindingNames(description.tables)
        self._epochs: dict[str, int] = {}
        """The epochs of tables at the beginning, by location. Where another program changes one, the ingestion recovers
        again."""
        self._has_recovered = False
        """Whether every table holds what is bound."""

    def recover(self) -> None:
        """Fences older terms, then brings every table up to the last binding."""
        self._has_recovered = False
        for shard in self.shards():
            shard.refresh()
            shard.fence(self._term)
            self._epochs[shard.location] = shard.epoch
        upper, shards = Time(self._remap.state().upper), SourceShards(self._remap, self._tables, self._names)
        bound = shards.bindings(Time(upper - 1)) if upper > 0 else self._source.remap_schema.empty_table()
        self._check_complete(shards)
        self._source.resume(bound, upper, shards)
        if upper > 0:
            self._apply_bound(upper)
        self._has_recovered = True

    def tick(self, time: Time) -> bool:
        """Mints and appends the binding at `time`; False where the remap is at or past that time. Raises RuntimeError
        where `recover`, or a tick that had minted, has failed: a table would lose the bindings that it lacks."""
        if not self._has_recovered:
            raise RuntimeError(f"{self._name}: a tick needs an ingester that has recovered: recover again")
        lower = self._remap.state().upper
        if time < lower:
            return False
        binding = self._source.discover(time)
        self._check_epochs()  # a binding is applied for certain: it must be of after another program's change
        named = self._names.in_bindings(binding)
        timed = named.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), named.num_rows))
        self._has_recovered = False
        named_files = files_beside(binding, {table.table.name: shard for table, shard in self._tables})
        self._append(self._remap, timed if timed.num_rows else None, lower, Time(time + 1), None, named_files)
        self._source.confirm(binding)
        self._apply(binding, time, Time(time + 1))
        self._has_recovered = True
        self._source.confirm_appends()
        return True

    def _check_complete(self, shards: SourceShards) -> None:
        """Raises SourceUnusable where a table without rows has bindings up to the remap's since, which does not pass
        the first binding of a table that is ingested: it was removed before it had its rows, and then adopted."""
        since, empty = self._remap.state().since, [table for table, shard in self._tables if shard.state().upper == 0]
        is_gone = 0 < since < self._remap.state().upper and TABLE in self._source.remap_schema.names
        if not empty or not is_gone or self._source.begins_anew():
            return
        bound = names_in(shards.bindings(Time(since)))
        for table in empty:
            if table.table.name in bound:
                raise SourceUnusable(
                    f"table {table.table.name} lacks bindings that are gone: it was removed from its DataSource before "
                    f"it had its first rows. Move {table.shard.location} away, and add the table to the DataSource "
                    "after the others are adopted"
                )

    def _check_epochs(self) -> None:
        """Raises ForeignCommit where another program has changed a table since the ingestion recovered."""
        for shard in self.shards():
            shard.refresh()
            shard.check_epoch(self._epochs.get(shard.location))

    def run_ahead(self, bound: Time) -> None:
        """Moves the uppers of static tables up to AHEAD_MS past the remap, as far as `bound` allows."""
        upper = Time(self._remap.state().upper)
        ahead = Time(min(upper + AHEAD_MS, bound))
        for table, shard in self._tables:
            own = shard.state().upper
            if self._source.is_static(table) and upper > 0 and own < upper + AHEAD_MS // 2 and own < ahead:
                self._append(shard, None, own, ahead)

    def compact_remap(self) -> None:
        """Moves the remap's since up to the bindings that every table holds."""
        held = min([self._remap.state().upper, *(s.state().upper for _, s in self._tables)])
        if held - 1 > self._remap.state().since + REMAP_SINCE_LAG_MS:
            self._remap.downgrade_since(held - 1)

    def shards(self) -> list[Shard]:
        return [self._remap, *(shard for _, shard in self._tables)]

    def table_shards(self) -> Iterable[tuple[IngestedTable, Shard]]:
        return self._tables

    def _apply_bound(self, upper: Time) -> None:
        """Appends the bindings that a table lacks, in order of time. A table that was added lately is in no binding up
        to the remap's since; its upper stands still until the next tick, whose binding is its first one. A table that
        stands still takes none, and does not make the others wait while its bindings are read."""
        moving = [shard.state().upper for table, shard in self._tables if not self._stands_still(table)]
        behind: list[int] = [own for own in moving if own < upper]
        if not behind:
            return
        if 0 in behind:
            behind = [own for own in behind if own > 0] + [self._remap.state().since + 1]
        updates = self._bindings(Time(min(behind)), upper)
        for time, binding in _by_time(updates):
            self._apply(binding.drop_columns([TIME]), time, Time(time + 1))
        for table, shard in self._tables:
            if 0 < shard.state().upper < upper and not self._stands_still(table):
                self._append(shard, None, shard.state().upper, upper)

    def _bindings(self, lower: Time, upper: Time) -> pa.Table:
        """The remap's updates with times in [lower, upper)."""
        wanted = self._source.remap_schema.append(pa.field(DIFF, pa.int64())).append(pa.field(TIME, pa.int64()))
        parts = self._remap.listen(lower, upper)
        batches = [batch for part in parts for batch in read_part(part, columns=wanted.names)]
        return self._names.in_source(pa.Table.from_batches(batches).cast(wanted)) if batches else wanted.empty_table()

    def _apply(self, binding: pa.Table, time: Time, new_upper: Time) -> None:
        wanting = {t.id: (t, s) for t, s in self._tables if s.state().upper <= time and not self._stands_still(t)}
        tables = [table for table, _ in wanting.values()]
        staged = self._source.stage(binding, time, tables) if binding.num_rows else dict.fromkeys(wanting)
        for id, data in staged.items():
            table, shard = wanting[id]
            upper = shard.state().upper
            self._append(shard, data or None, upper, new_upper, None if upper else self._source.first_time(table))

    def _stands_still(self, table: IngestedTable) -> bool:
        return table.table.name in self._source.stop_reasons() or table.table.name in self._source.unbound_tables()

    def _append(
        self,
        shard: Shard,
        data: pa.Table | list[StagedFile] | None,
        lower: int,
        upper: Time,
        since: Time | None = None,
        named: FilesOf = (),
    ) -> None:
        """`named`: staged files that the rows of a binding name."""
        epoch, files = self._epochs.get(shard.location), list(named)
        if isinstance(data, list):
            files += [(shard, file) for file in data]
        try:
            outcome = shard.compare_and_append(
                data, expected_upper=lower, new_upper=upper, term=self._term, since=since, epoch=epoch
            )
        except BaseException:
            self._leftovers.note(shard, lower, files)
            raise
        if isinstance(outcome, UpperMismatch):
            where = f"{self._name}: shard {shard.location}"
            raise ShardMoved(f"{where} is at upper {outcome.current_upper}; expected {lower}; starting over from there")
        self._leftovers.settle(shard, lower, files)


def _by_time(updates: pa.Table) -> Iterator[tuple[Time, pa.Table]]:
    """The updates of each time, in order of time."""
    times = updates.column(TIME).to_numpy()
    order = np.argsort(times, kind="stable")
    ordered = updates.take(order)
    distinct, begins = np.unique(times[order], return_index=True)
    for time, begin, rows in zip(distinct, begins, np.diff(begins, append=len(times)), strict=True):
        yield Time(int(time)), ordered.slice(int(begin), int(rows))


def _open(shards: ShardWriters, shard: ShardMetadata) -> Shard:
    return shards.open(shard.location, arrow_schema(shard.columns), shard_id=shard.shard_id)
