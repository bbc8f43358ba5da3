"""Looks at the upstream's catalogue for what the stream does not tell: dropped tables, tables that are no longer
published, columns that another one of their name replaced, and how much WAL the slot keeps.

    changes were read ─► fingerprint differs, or the stream described a table? ─► look ─► bound, or the table stops
    10 s without a look ─────────────────────────────────────────────────────────► look

A change of a definition holds a lock on the table until it is visible, so changes by other transactions come later.
A transaction's own changes are visible some time after the stream has them, much later where it waits for a standby.
So a look waits until all transactions that were read are visible. Then it sees each definition by which changes were
made, or a later one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.errors import IngestionError, SourceNotReady, SourceUnusable, TableStopped
from tidemark_replica.storage.postgres.catalogue.fingerprint import fingerprint
from tidemark_replica.storage.postgres.connection import SERVER_START, System, Upstream
from tidemark_replica.storage.postgres.pgoutput import lsn_text, parse_lsn
from tidemark_replica.storage.postgres.relations import Connection, PinnedTable, find_table
from tidemark_replica.storage.postgres.stop import NOT_PUBLISHED, SLOT_LOST, UPSTREAM_REPLACED, Gap

_SLOT = """
select wal_status, confirmed_flush_lsn::text, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, active_pid,
    pg_current_wal_flush_lsn()::text
from pg_replication_slots where slot_name = %s
"""
_RUNNING = """
select transactionid::text::bigint from pg_locks
where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted
"""
"""A transaction has its lock until others see what it did."""
VISIBLE_SECONDS = 60.0
"""A transaction that was read, and is not visible after so long, is not bound; it is read again."""
WARN_BYTES = 1 << 30
"""A slot that keeps more WAL than this is warned of."""


@dataclass(frozen=True)
class SlotState:
    """`name`: of the slot. `status`: `reserved`, `extended`, `unreserved` or `lost`. `behind`: bytes of WAL that it
    keeps. `flushed`: where the server's WAL ends; whatever a slot ever gave is before it."""

    name: str
    status: str
    confirmed: int
    behind: int
    active_pid: int | None
    flushed: int

    @property
    def warning(self) -> str:
        if self.status not in ("unreserved", "lost") and self.behind < WARN_BYTES:
            return ""
        return f"WalKept: replication slot {self.name} keeps {self.behind >> 20} MiB of WAL upstream ({self.status})"


@dataclass(frozen=True)
class Findings:
    """The findings of one look, as of the position `lsn`.

    `stopped`: tables whose rows may not read as they did. `pinned`: the others. `rewritten`: those of them that may
    have been unlogged for a while, each with the transaction that may have emptied it instead: then the stream has a
    TRUNCATE of that transaction before `lsn`. `fingerprint`: another one later tells that the findings may be others
    then. `slots`: the states of the slots that exist.
    """

    lsn: int
    stopped: dict[str, TableStopped]
    pinned: dict[str, PinnedTable]
    rewritten: frozenset[tuple[str, int]]
    fingerprint: str
    slots: tuple[SlotState, ...]

    def unexplained(self, truncated: Collection[tuple[str, int]]) -> set[str]:
        """The tables that may have been unlogged. `truncated`: tables, and transactions that emptied them."""
        return {name for name, _ in self.rewritten.difference(truncated)}


def opened_catalogue(upstream: Upstream, server_start: str) -> Connection:
    """A connection to the server that was started then. Raises IngestionError where the address leads to another one:
    its catalogue says nothing of the changes that were read."""
    connection = upstream.opened()
    with upstream.patience(connection.pgconn):
        started = connection.execute(SERVER_START).fetchone()
    if started != (server_start,):
        connection.close()
        raise IngestionError(f"PostgreSQL {upstream.name}: another server answers than a moment ago")
    return connection


def look(
    connection: Connection,
    spec: PostgresSource,
    slots: Sequence[str],
    tables: Sequence[tuple[PostgresTable, PinnedTable]],
    described: Mapping[str, Sequence[Sequence[str]]],
) -> Findings:
    """Compares the catalogue with what is pinned. `described`: by table, the names of its columns in each description
    of it that the stream gave since the last look.

    Raises:
        Gap: the publication is not the one that was followed.
    """
    with connection.transaction():  # all queries see the catalogue of one moment
        connection.execute("set transaction isolation level repeatable read, read only")
        mark = fingerprint(connection, spec.publication, [pinned for _, pinned in tables])
        _check_followed(connection, spec, [pinned for _, pinned in tables])
        stopped, going_on, rewritten = {}, {}, set()
        for table, pinned in tables:
            try:
                definition = find_table(connection, spec, table)
                now = definition.pinned(table.columns or ())
                pinned.check_same(now, described.get(table.name, ()))
            except TableStopped as error:
                stopped[table.name] = error
                continue
            except SourceUnusable as error:
                stopped[table.name] = TableStopped(NOT_PUBLISHED, str(error))
                continue
            # another index may have the key's columns in another order; digests of error rows have that of before
            going_on[table.name] = replace(now, key=pinned.key)
            if pinned.is_perhaps_unlogged(now):
                rewritten.add((table.name, definition.emptied_by))
        (lsn,) = connection.execute("select pg_current_wal_lsn()::text").fetchone() or ("0/0",)
        states = tuple(state for slot in slots if (state := slot_state(connection, slot)) is not None)
    return Findings(parse_lsn(lsn), stopped, going_on, frozenset(rewritten), mark, states)


def wait_until_visible(
    upstream: Upstream, connection: Connection, transactions: Sequence[int], alive: Callable[[], None]
) -> None:
    """Waits until other sessions see what the committed transactions did. `alive` is called now and then.

    Raises:
        SourceNotReady: it took VISIBLE_SECONDS.
    """
    if not transactions:
        return
    end, pause = time.monotonic() + VISIBLE_SECONDS, 0.001
    while True:
        with upstream.patience(connection.pgconn):
            running = [xid for (xid,) in connection.execute(_RUNNING).fetchall()]
        unseen = np.intersect1d(np.asarray(running, np.int64), np.asarray(transactions, np.int64))
        if not unseen.size:
            return
        if time.monotonic() > end:
            raise SourceNotReady(
                f"transaction {unseen[0]} was committed {VISIBLE_SECONDS:g} s ago, and is not visible upstream: look"
                " at the standbys of synchronous_standby_names"
            )
        alive()
        time.sleep(pause)
        pause = min(2 * pause, 0.5)


def _check_followed(connection: Connection, spec: PostgresSource, tables: Sequence[PinnedTable]) -> None:
    """The slot cannot be read past the moment at which the publication was dropped."""
    row = connection.execute("select oid from pg_publication where pubname = %s", (spec.publication,)).fetchone()
    if tables and (row is None or any(table.membership.publication != row[0] for table in tables)):
        raise publication_gone(spec.publication)


def publication_gone(name: str) -> Gap:
    return Gap(NOT_PUBLISHED, f"publication {name} was dropped or renamed; where one has its name now, it is another")


def slot_state(connection: Connection, slot: str) -> SlotState | None:
    """The state of the slot; None where there is none."""
    row = connection.execute(_SLOT, (slot,)).fetchone()
    if row is None:
        return None
    status, confirmed, behind, active_pid, flushed = row
    return SlotState(slot, status or "lost", parse_lsn(confirmed or "0/0"), behind or 0, active_pid, parse_lsn(flushed))


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
