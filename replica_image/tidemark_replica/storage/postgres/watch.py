"""Looks at the upstream's catalogue now and then, for what the stream does not tell: dropped tables, tables that are
no longer published, columns that another one of their name replaced, and how much WAL the slot keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.postgres.connection import System, Upstream
from tidemark_replica.storage.postgres.pgoutput import lsn_text, parse_lsn
from tidemark_replica.storage.postgres.relations import Connection, PinnedTable, find_table
from tidemark_replica.storage.postgres.stop import NOT_PUBLISHED, SLOT_LOST, UPSTREAM_REPLACED, Gap

_SLOT = """
select wal_status, confirmed_flush_lsn::text, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, active_pid,
    pg_current_wal_flush_lsn()::text
from pg_replication_slots where slot_name = %s
"""
WARN_BYTES = 1 << 30
"""A slot that keeps more WAL than this is warned of."""


@dataclass(frozen=True)
class SlotState:
    """`status`: `reserved`, `extended`, `unreserved` or `lost`. `behind`: bytes of WAL that the slot keeps.
    `flushed`: where the server's WAL ends; whatever a slot ever gave is before it."""

    status: str
    confirmed: int
    behind: int
    active_pid: int | None
    flushed: int

    @property
    def warning(self) -> str:
        if self.status not in ("unreserved", "lost") and self.behind < WARN_BYTES:
            return ""
        return f"WalKept: the replication slot keeps {self.behind >> 20} MiB of WAL upstream ({self.status})"


@dataclass(frozen=True)
class Findings:
    """The findings of one look. `stopped`: tables that stop once everything before `lsn` was read. `pinned`: the other
    tables. `slot`: None where there is no such slot."""

    lsn: int
    stopped: dict[str, TableStopped]
    pinned: dict[str, PinnedTable]
    slot: SlotState | None


def look(
    upstream: Upstream, spec: PostgresSource, slot: str, tables: Iterable[tuple[PostgresTable, PinnedTable]]
) -> Findings:
    """Compares the catalogue with what is pinned. Raises IngestionError."""
    stopped, going_on = {}, {}
    with upstream.connect() as connection:
        for table, pinned in tables:
            try:
                going_on[table.name] = _checked(connection, spec, table, pinned)
            except TableStopped as error:
                stopped[table.name] = error
            except SourceUnusable as error:
                stopped[table.name] = TableStopped(NOT_PUBLISHED, str(error))
        (lsn,) = connection.execute("select pg_current_wal_lsn()::text").fetchone() or ("0/0",)
        return Findings(parse_lsn(lsn), stopped, going_on, slot_state(connection, slot))


def slot_state(connection: Connection, slot: str) -> SlotState | None:
    """None where there is no such slot."""
    row = connection.execute(_SLOT, (slot,)).fetchone()
    if row is None:
        return None
    status, confirmed, behind, active_pid, flushed = row
    return SlotState(status or "lost", parse_lsn(confirmed or "0/0"), behind or 0, active_pid, parse_lsn(flushed))


def check_system(now: System, pinned: System) -> None:
    """Raises Gap where another database answers, or the same on another timeline."""
    if (now.id, now.database) != (pinned.id, pinned.database):
        raise Gap(UPSTREAM_REPLACED, f"database {now.database} of cluster {now.id} answers; {pinned.id} was followed")
    if now.timeline != pinned.timeline:
        raise Gap(
            UPSTREAM_REPLACED,
            f"the database is on timeline {now.timeline} and was on {pinned.timeline}: a failover or a restore,"
            " which may have lost transactions",
        )


def check_slot(state: SlotState | None, slot: str, lsn: int) -> None:
    """Raises Gap where the slot cannot give all transactions from the position on."""
    if state is None:
        raise Gap(SLOT_LOST, f"replication slot {slot} is gone")
    if state.status == "lost":
        raise Gap(SLOT_LOST, f"the WAL of replication slot {slot} was removed (max_slot_wal_keep_size)")
    if state.flushed < lsn:
        raise Gap(
            UPSTREAM_REPLACED,
            f"the server's WAL ends at {lsn_text(state.flushed)}, before {lsn_text(lsn)}, which was read last:"
            " the server was restored from an earlier copy of its disk",
        )
    if state.confirmed > lsn:
        raise Gap(
            SLOT_LOST,
            f"replication slot {slot} is at {lsn_text(state.confirmed)}, past {lsn_text(lsn)}, which was read last:"
            " it was made anew, or another reader moved it",
        )


def _checked(connection: Connection, spec: PostgresSource, table: PostgresTable, pinned: PinnedTable) -> PinnedTable:
    now = find_table(connection, spec, table).pinned(table.columns or ())
    pinned.check_same(now)
    return now
