"""The positions of a `postgres:` source in its remap shard (`staged_bindings`).

("", system)      {"id": .., "timeline": .., "database": ..}   the followed database
("", slot)        the name of the replication slot
("", lsn)         the transactions that were committed before it are bound
(table, pinned)   the table's oid and columns at its snapshot
(table, begun)    the time of the binding with its snapshot: older bindings are not the table's any more
(table, shard)    the id of the table's shard
(table, stopped)  `Reason: text`, where it takes no further transaction

A source that adopts these bindings may add a table that has the name of an earlier one, which it did not adopt. The
shard is another one then, and the positions of that name are of no table: the new one begins with a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tidemark_protocol.ids import ShardId, Time
from tidemark_replica.storage.postgres.connection import System
from tidemark_replica.storage.postgres.pgoutput import lsn_text, parse_lsn
from tidemark_replica.storage.postgres.relations import PinnedTable
from tidemark_replica.storage.source import SourceShards
from tidemark_replica.storage.staged_bindings import Entry

SYSTEM, SLOT, LSN = "system", "slot", "lsn"
PINNED, BEGUN, SHARD, STOPPED = "pinned", "begun", "shard", "stopped"
Changes = dict[Entry, str | None]


@dataclass(frozen=True)
class TableShards:
    """The shards of tables. `ids`: by the tables' names. `not_begun`: tables without rows of which it is known that
    positions without a shard, which earlier images bound, are an earlier table's."""

    ids: Mapping[str, ShardId] = field(default_factory=dict)
    not_begun: frozenset[str] = frozenset()

    @classmethod
    def of(cls, values: Mapping[Entry, str], shards: SourceShards) -> TableShards:
        """The shards of a source. `values`: as `StagedBindings.positions`. The remap's since does not pass the time at
        which a table began as long as that table has no rows: one that began before it had the name earlier."""
        ids = {table.table.name: table.shard.shard_id for table, _ in shards.tables}
        since, positions = shards.remap.state().since, Positions(values, cls(ids))
        empty = (table.table.name for table, shard in shards.tables if shard.state().upper == 0)
        return cls(ids, frozenset(name for name in empty if positions.begun(name) <= since))


@dataclass(frozen=True)
class Positions:
    """Reads the positions. `values`: as `StagedBindings.positions`."""

    values: Mapping[Entry, str]
    shards: TableShards = TableShards()

    @property
    def system(self) -> System | None:
        """The followed database; None before the first binding."""
        text = self.values.get(("", SYSTEM))
        return None if text is None else System(**json.loads(text))

    @property
    def slot(self) -> str:
        return self.values[("", SLOT)]

    @property
    def lsn(self) -> int:
        return parse_lsn(self.values[("", LSN)])

    def pinned(self, table: str) -> PinnedTable | None:
        """None before the table's snapshot is bound."""
        text = self._own(table, PINNED)
        return None if text is None else PinnedTable.from_json(text)

    def begun(self, table: str) -> Time:
        return Time(int(self._own(table, BEGUN) or "0"))

    def stopped(self, table: str) -> str | None:
        return self._own(table, STOPPED)

    def _own(self, table: str, entry: str) -> str | None:
        """The position, if it is of this table, and not of an earlier one of its name."""
        shard = self.values.get((table, SHARD))
        is_own = table not in self.shards.not_begun if shard is None else shard == self.shards.ids.get(table)
        return self.values.get((table, entry)) if is_own else None


def upstream_changes(system: System, slot: str, lsn: int) -> Changes:
    """The positions of the source as a whole."""
    return {("", SYSTEM): json.dumps(asdict(system)), ("", SLOT): slot, ("", LSN): lsn_text(lsn)}


def pinned_changes(found: Mapping[str, PinnedTable], shards: TableShards) -> Changes:
    """The positions of tables that go on as they were found."""
    changes: Changes = {}
    for name, pinned in found.items():
        changes |= {(name, PINNED): pinned.to_json(), (name, SHARD): shards.ids[name]}
    return changes


def snapshot_changes(table: str, pinned: PinnedTable, shards: TableShards, time: Time) -> Changes:
    """The positions of a table whose snapshot is bound at the time."""
    return pinned_changes({table: pinned}, shards) | {(table, BEGUN): str(int(time)), (table, STOPPED): None}
