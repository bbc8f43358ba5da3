"""The positions of a `postgres:` source in its remap shard (`staged_bindings`).

("", system)      {"id": .., "timeline": .., "database": ..}   the followed database
("", slot)        the name of the replication slot
("", lsn)         the transactions that were committed before it are bound
(table, pinned)   the table's oid and columns at its snapshot
(table, begun)    the time of the binding with its snapshot: older bindings are not the table's any more
(table, malformed) how many error rows the table has got, those included that are gone
(table, stopped)  `Reason: text`, where it takes no further transaction
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tidemark_protocol.ids import Time
from tidemark_replica.storage.postgres.connection import System
from tidemark_replica.storage.postgres.pgoutput import lsn_text, parse_lsn
from tidemark_replica.storage.postgres.relations import PinnedTable
from tidemark_replica.storage.staged_bindings import Entry

SYSTEM, SLOT, LSN = "system", "slot", "lsn"
PINNED, BEGUN, STOPPED, MALFORMED = "pinned", "begun", "stopped", "malformed"
Changes = dict[Entry, str | None]


@dataclass(frozen=True)
class Positions:
    """Reads the positions. `values`: as `StagedBindings.positions`."""

    values: Mapping[Entry, str]

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
        """The pinned definition; None before the table's snapshot is bound."""
        text = self.values.get((table, PINNED))
        return None if text is None else PinnedTable.from_json(text)

    def begin_time(self, table: str) -> Time:
        """The time at which the table's snapshot is bound; 0 before it is."""
        return Time(int(self.values.get((table, BEGUN), "0")))

    def stop_text(self, table: str) -> str | None:
        """The reason why the table stopped, as text; None while it has not."""
        return self.values.get((table, STOPPED))

    def malformed(self, table: str) -> int:
        """The number of error rows that the bindings gave the table, those included that are gone."""
        return int(self.values.get((table, MALFORMED), "0"))

    def counted(self, malformed: Mapping[str, int]) -> Changes:
        """The counts of tables that get so many more error rows."""
        return {(name, MALFORMED): str(self.malformed(name) + count) for name, count in malformed.items() if count}


def upstream_changes(system: System, slot: str, lsn: int) -> Changes:
    """The positions of the source as a whole."""
    return {("", SYSTEM): json.dumps(asdict(system)), ("", SLOT): slot, ("", LSN): lsn_text(lsn)}


def snapshot_changes(table: str, pinned: PinnedTable, time: Time) -> Changes:
    """The positions of a table whose snapshot is bound at the time."""
    return {(table, PINNED): pinned.to_json(), (table, BEGUN): str(int(time)), (table, STOPPED): None}
