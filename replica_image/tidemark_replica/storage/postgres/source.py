"""A PostgreSQL database as a source: a snapshot, and from its position on every transaction, whole and at one time.

    first binding     slot made ──► contents at its position ──► staged ──► bound: slot, position, staged files
    further ones      transactions up to the newest commit  ──► staged ──► bound: position, staged files
    next discover     the tables have the binding's rows    ──► its position is confirmed upstream

Upstream is never asked twice for the same transaction: what is bound is staged. A process that dies before it bound
leaves the slot where it was; one that dies before the first binding leaves a slot that the next one makes anew.

A table that stops (`stop`) is stopped for good, as later changes pass it by. Only new contents help it: with `onGap:
resnapshot` their difference to the shard is bound, at a position that the other tables reach at the same time.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import psycopg
import pyarrow as pa

from tidemark_persist import StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import IngestedTable, PostgresSource, replication_slot
from tidemark_replica.storage.errors import IngestionError, TableStopped
from tidemark_replica.storage.postgres.catalogue.fingerprint import fingerprint
from tidemark_replica.storage.postgres.catalogue.membership import check_publication
from tidemark_replica.storage.postgres.changes import TableChanges
from tidemark_replica.storage.postgres.connection import Credentials, Replication, System, Upstream
from tidemark_replica.storage.postgres.contents.copied_tables import CopiedTable, copy_tables, smallest
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot
from tidemark_replica.storage.postgres.keyed.rows import KeyedRows
from tidemark_replica.storage.postgres.late_tables import LateTables, ReadyTables
from tidemark_replica.storage.postgres.pgoutput import ReplicatedRelation, lsn_text
from tidemark_replica.storage.postgres.positions import (
    LSN,
    PINNED,
    STOPPED,
    Changes,
    Positions,
    snapshot_changes,
    upstream_changes,
)
from tidemark_replica.storage.postgres.relations import PinnedTable
from tidemark_replica.storage.postgres.slots import drop_slot, start_at_slot
from tidemark_replica.storage.postgres.stop import NOT_PUBLISHED, SNAPSHOT_FAILED, Gap
from tidemark_replica.storage.postgres.tick import Tick
from tidemark_replica.storage.postgres.watch import (
    Findings,
    SlotState,
    check_system,
    look,
    opened_catalogue,
    publication_gone,
    wait_until_visible,
)
from tidemark_replica.storage.source import ACTIVITY_SECONDS, Source, SourceShards
from tidemark_replica.storage.staged_bindings import REMAP_SCHEMA, StagedBindings, staged_files

RETRY_SECONDS, RETRY_SECONDS_MAX = 30.0, 3600.0
LOOK_SECONDS = 10.0
IDLE_SECONDS = 20.0
"""A stream that was not read for so long is opened anew: the server ends it, for want of answers."""
PROGRESS_BYTES = 16 << 20
"""A position without changes of these tables is bound when it is so far ahead, so that the slot moves on."""
ALIVE_SECONDS = 5.0
Pinned = Mapping[str, PinnedTable]
_UNLOGGED = (
    "all rows were written anew, perhaps as the table was unlogged for a while, whose changes are not sent;"
    " a publication that names the table (ALTER PUBLICATION ... ADD TABLE) does not allow that"
)


def pause_after(seconds: float) -> float:
    """The seconds until contents are copied again. `seconds`: how long the try that failed took."""
    return min(max(RETRY_SECONDS, seconds), RETRY_SECONDS_MAX)


class PostgresIngestion(Source):
    """The `Source` of a `postgres:` DataSource. `id`: of the ingestion; the slot's name is made of it."""

    remap_schema = REMAP_SCHEMA

    def __init__(self, spec: PostgresSource, id: GlobalId, credentials: Credentials) -> None:
        self._spec, self._slot = spec, replication_slot(id)
        self._late_slot = f"{self._slot}_new"
        self._upstream, self._credentials = Upstream(spec, credentials), credentials
        self._bindings = StagedBindings()
        self._tables: dict[str, CopiedTable] = {}
        self._stopped: dict[str, str] = {}
        self._due: dict[str, float] = {}
        """The time to copy the contents of each table that stopped, or never began, while the others go on."""
        self._needs_resume = False
        """Whether no table can go on, or begin, before the next `resume`."""
        self._late: LateTables | None = None
        self._stream: Replication | None = None
        self._server_start = ""  # of the server of the stream
        self._relations: dict[int, ReplicatedRelation] = {}
        self._looked_at = 0.0
        self._findings: Findings | None = None
        self._catalogue: psycopg.Connection | None = None
        """The connection for looks at the catalogue. It is open as long as the stream."""
        self._rows: dict[str, KeyedRows] = {}
        """The rows by key, by table, where its changes name rows by a key."""
        self._time, self._alive_at = Time(0), 0.0
        self._activity, self._active_since = "", 0.0

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        self._bindings.resume(bound)
        specs = {table.name: table for table in self._spec.tables}
        self._tables = {
            ingested.table.name: CopiedTable(specs[ingested.table.name], ingested, shard)
            for ingested, shard in shards.tables
        }
        self._stopped = {name: text for name in self._tables if (text := self._positions.stop_text(name))}
        for name in self._live():
            try:
                self._tables[name].check_key(self._pinned(name))
            except TableStopped as error:  # an adopted table
                self._stop(name, error)
        self._due = {name: 0.0 for name in self._tables if self._begins_anew(name)}
        self._needs_resume = False
        self._forget_rows()

    def discover(self, time: Time) -> pa.Table:
        self._time = time
        if self._needs_resume:
            return self._bindings.binding({})
        if self._positions.system is None:
            return self._begin(time)
        try:
            with self._upstream.errors():
                return self._continue(time)
        except Gap as gap:
            self.close()
            if self._spec.on_gap == "resnapshot":
                return self._begin(time, gap)
            changes: Changes = {}
            for name in [name for name in self._tables if name not in self._stopped]:
                changes |= self._stop(name, TableStopped(gap.reason, str(gap)))
            self._needs_resume = True
            return self._bindings.binding(changes)

    def confirm(self, binding: pa.Table) -> None:
        self._bindings.confirm(binding)
        for rows in self._rows.values():
            rows.bound(self._time + 1)

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        # bindings before a table's snapshot are not the table's any more
        return staged_files(
            binding, [table for table in tables if time >= self._positions.begin_time(table.table.name)]
        )

    def unbound_tables(self) -> Collection[str]:
        return [name for name in self._tables if self._positions.pinned(name) is None]

    def first_time(self, table: IngestedTable) -> Time | None:
        return self._positions.begin_time(table.table.name)

    def stop_reasons(self) -> Mapping[str, str]:
        return self._stopped

    def retries(self) -> bool:
        """While some tables go on, the source tries the others by itself."""
        return self._needs_resume and bool(self._due)

    def counters(self) -> Mapping[str, int]:
        lsn = {} if self._positions.system is None else {"lsn": self._positions.lsn}
        slots = self._slots()
        return lsn | ({"walBytesBehind": slots[0].behind} if slots else {})

    def progress(self) -> Mapping[str, TableReport]:
        """Every table lacks the bytes of WAL that the slots keep behind; a late one more."""
        behind, counts = next((slot.behind for slot in self._slots()), None), self._positions
        reports = {n: TableReport(n, behind=behind, unit="bytes", malformed=counts.malformed(n)) for n in self._tables}
        if (late := self._late) is not None:
            for name in late.names:
                reports[name] = replace(reports[name], snapshot_percent=late.percent.get(name, 0))
        return reports

    def warning(self) -> str:
        return next((slot.warning for slot in self._slots() if slot.warning), "")

    def _slots(self) -> list[SlotState]:
        """The slots upstream, also that of late tables, as of the last look; first the one that keeps the most WAL."""
        slots = self._findings.slots if self._findings else ()
        return sorted(slots, key=lambda slot: slot.behind, reverse=True)

    def activity(self) -> str:
        for name, rows in list(self._rows.items()):
            since = rows.building_since
            if since is not None and clock.monotonic() - since > ACTIVITY_SECONDS:
                return f"reading the rows of table {name}, to find them by key"
        now, late = clock.monotonic(), self._late
        if late is not None and now - late.began_at > ACTIVITY_SECONDS and not self._activity:
            return late.activity
        return self._activity if now - self._active_since > ACTIVITY_SECONDS else ""

    def interrupt(self) -> None:
        self._upstream.interrupted.set()
        if (late := self._late) is not None:
            late.cancel()

    def close(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            late.close()
        self._disconnect()
        self._forget_rows()

    def _disconnect(self) -> None:
        """Ends the connections. Rows by key stay as they are: they are of the shard, and not of a connection."""
        if self._stream is not None:
            self._stream.close()
        if self._catalogue is not None:
            self._catalogue.close()
        self._stream = self._catalogue = None

    def _forget_rows(self) -> None:
        for rows in self._rows.values():
            rows.close()
        self._rows.clear()

    def _rows_of(self, name: str, pinned: PinnedTable) -> KeyedRows:
        rows = self._rows.get(name)
        if rows is None or rows.keys != pinned.key:
            if rows is not None:
                rows.close()
            rows = self._rows[name] = KeyedRows(self._tables[name].shard, pinned.key, self._keep_alive)
        return rows

    def _keep_alive(self) -> None:
        """The server ends a stream whose reader gives no answer for long. Raises SourceNotReady after an interrupt."""
        self._upstream.check_goes_on()
        if self._stream is not None and clock.monotonic() - self._alive_at > ALIVE_SECONDS:
            self._alive_at = clock.monotonic()
            self._stream.confirm(self._positions.lsn)

    @property
    def _positions(self) -> Positions:
        return Positions(self._bindings.positions)

    def _live(self) -> list[str]:
        return [name for name in self._tables if self._positions.pinned(name) and name not in self._stopped]

    def _pinned(self, name: str) -> PinnedTable:
        pinned = self._positions.pinned(name)
        assert pinned is not None
        return pinned

    def _stop(self, name: str, error: TableStopped, pause: float | None = None) -> Changes:
        """Stops the table. Returns the positions that bind the stop; none before the table's first rows are bound.
        `pause`: the seconds until it may begin anew; RETRY_SECONDS if None."""
        self._stopped[name] = f"{error.reason}: table {name}: {error}"
        if self._begins_anew(name):
            self._due[name] = clock.monotonic() + (RETRY_SECONDS if pause is None else pause)
        return {} if self._positions.pinned(name) is None else {(name, STOPPED): self._stopped[name]}

    def _begins_anew(self, name: str) -> bool:
        """Whether new contents are copied: always of a table that never began, if wanted of one that stopped."""
        return self._positions.pinned(name) is None or (name in self._stopped and self._spec.on_gap == "resnapshot")

    def _begin(self, time: Time, gap: Gap | None = None) -> pa.Table:
        """Makes the slot, and binds the contents of the small tables at its position: no table goes on that could wait
        for them. The others are late."""
        with self._upstream.errors():
            replication = self._upstream.replicate()
            try:
                system = replication.system()
                with self._upstream.connect() as connection:
                    check_publication(connection, self._spec.publication)
                for slot in {self._slot} if self._positions.system is None else {self._slot, self._positions.slot}:
                    drop_slot(self._upstream, replication, slot)
                self._show("waiting for a slot, until the transactions that run upstream have ended")
                lsn, exported = replication.create_slot(self._slot)
                with self._upstream.connect() as connection:
                    first = smallest(connection, list(self._tables.values()))
                self._show("snapshot: " + ", ".join(table.spec.name for table in first))
                copied = copy_tables(Snapshot(self._upstream, self._spec, exported, self._progress), first, time)
                self._show("")
                changes = self._begin_tables(copied.pinned, copied.stopped, time)
                changes |= self._positions.counted(copied.malformed)
                late = self._tables.keys() - {table.spec.name for table in first}
                self._needs_resume = not copied.pinned and not late
                if self._needs_resume:
                    replication.drop_slot(self._slot)
                    return self._bindings.binding(changes)
            finally:
                replication.close()
        for name in late:
            if gap is not None:
                changes |= self._stop(name, TableStopped(gap.reason, str(gap)))
            self._due[name] = 0.0
        return self._bindings.binding(changes | upstream_changes(system, self._slot, lsn), copied.staged)

    def _begin_tables(
        self, pinned: Pinned, stopped: Mapping[str, TableStopped], time: Time, pause: float | None = None
    ) -> Changes:
        """Tables begin at the time, or cannot. `pause`: see `_stop`."""
        changes: Changes = {}
        for name, error in stopped.items():
            changes |= self._stop(name, error, pause)
        for name, each in pinned.items():
            changes |= snapshot_changes(name, each, time)
            self._stopped.pop(name, None)
            self._due.pop(name, None)
        return changes

    def _continue(self, time: Time) -> pa.Table:
        """Binds the transactions that came, and late tables that are ready."""
        for rows in self._rows.values():
            rows.discard()
        stream = self._opened()
        stream.confirm(self._positions.lsn)
        changes, ready = self._late_tables(time)
        tick = Tick(self._spec, self._relations, self._positions.lsn)
        now = Positions(self._bindings.positions | {key: value for key, value in changes.items() if value is not None})
        pinned = {name: each for name in self._tables if name not in self._stopped and (each := now.pinned(name))}
        for name, each in pinned.items():
            table, rows = self._tables[name], self._rows_of(name, each)
            if ready is not None and name in ready.pinned:
                files, malformed = ready.staged.get(name, []), ready.tick.malformed.get(name, 0)
                copied = TableChanges(table.ingested, table.shard, each, rows, time, files, ready.lsn, malformed)
                tick.add(copied)
            else:
                tick.add(TableChanges(table.ingested, table.shard, each, rows, time))
        if ready is not None:
            tick.absorb(ready.tick)
        try:
            return self._bound(tick, stream, pinned, changes, ready)
        except BaseException:
            tick.discard()
            raise

    def _bound(
        self, tick: Tick, stream: Replication, pinned: Pinned, changes: Changes, ready: ReadyTables | None
    ) -> pa.Table:
        """Reads the changes of the tables `pinned`, and binds them. `changes`: of positions, so far."""
        lsn = self._read(tick, stream, ready.lsn if ready is not None and ready.pinned else 0)
        lsn, stopped, found = self._checked(tick, stream, lsn, pinned)
        staged = tick.finish()
        for name, error in (tick.stopped | stopped).items():
            self._tables[name].shard.discard(staged.pop(name, []))
            self._rows.pop(name).close()
            pause = pause_after(ready.seconds) if ready is not None and name in ready.pinned else None
            changes = {key: value for key, value in changes.items() if key[0] != name}
            changes |= self._stop(name, error, pause)
        changes |= self._positions.counted({n: c for n, c in tick.malformed.items() if n not in self._stopped})
        # the tables that go on as they were found, for the next look to compare with
        changes |= {(name, PINNED): each.to_json() for name, each in found.items() if name not in self._stopped}
        if stream.sent - lsn > PROGRESS_BYTES:
            lsn = stream.sent
        return self._bindings.binding(changes | {("", LSN): lsn_text(lsn)}, staged)

    def _read(self, tick: Tick, stream: Replication, until: int) -> int:
        """Raises Gap where the slot is at a moment at which there was no publication: the server reads no further."""
        try:
            return tick.read(stream, until)
        except psycopg.errors.UndefinedObject:
            raise publication_gone(self._spec.publication) from None

    def _checked(
        self, tick: Tick, stream: Replication, lsn: int, pinned: Pinned
    ) -> tuple[int, dict[str, TableStopped], dict[str, PinnedTable]]:
        """Looks at the catalogue after changes were read and before they are bound. Returns the position that was read
        up to, the tables that stop, and how the others were found.

        A table with another file is read on, as the TRUNCATE that made it may follow; without one it may have been
        unlogged. A still newer file is left to the next look, which then must not be left out."""
        first = last = self._look(tick, pinned)
        if first is None or last is None:
            return lsn, {}, {}
        if first.unexplained(tick.truncated):
            lsn = self._read(tick, stream, max(lsn, first.lsn))
            last = self._look(tick, pinned) or first
        unlogged = first.unexplained(tick.truncated)
        stopped = last.stopped | first.stopped | {name: TableStopped(NOT_PUBLISHED, _UNLOGGED) for name in unlogged}
        found = dict(last.pinned)
        if newer := last.unexplained(tick.truncated):
            found |= {name: each for name, each in first.pinned.items() if name in newer}
            self._findings = replace(last, fingerprint="")
        return lsn, stopped, found

    def _look(self, tick: Tick, pinned: Pinned) -> Findings | None:
        """The findings; None where nothing is to be looked at: there are no changes, or the catalogue is as it was."""
        is_due = clock.monotonic() - self._looked_at >= LOOK_SECONDS
        if not (is_due or tick.described or tick.has_changes):
            return None
        tables = [(self._tables[name].spec, each) for name, each in pinned.items()]
        if self._catalogue is None:
            self._catalogue = opened_catalogue(self._upstream, self._server_start)
        wait_until_visible(self._upstream, self._catalogue, tick.transactions, self._keep_alive)
        with self._upstream.patience(self._catalogue.pgconn):
            mark = self._findings.fingerprint if self._findings else None
            if not (is_due or tick.described) and mark == fingerprint(
                self._catalogue, self._spec.publication, pinned.values()
            ):
                return None
            slots = self._positions.slot, self._late_slot
            self._findings = look(self._catalogue, self._spec, slots, tables, tick.described)
        self._looked_at = clock.monotonic()
        return self._findings

    def _late_tables(self, time: Time) -> tuple[Changes, ReadyTables | None]:
        """Begins to copy tables that are due, and takes those that are ready. The others go on."""
        if self._late is None:
            now = clock.monotonic()
            due = {name: self._tables[name] for name, at in self._due.items() if at <= now}
            if due:
                self._upstream.check_goes_on()
                self._late = LateTables(
                    self._spec, self._credentials, self._late_slot, self._system(), due, time, self._positions.lsn
                )
            return {}, None
        late, ready = self._late, None
        try:
            ready = late.hand_over(self._positions.lsn, self._keep_alive)
        except IngestionError as error:
            self._upstream.check_goes_on()  # `close` waits for the end of a thread that was interrupted
            self._late = None
            self._stopped |= {name: f"{SNAPSHOT_FAILED}: table {name}: {error}" for name in late.names}
            now = clock.monotonic()
            self._due |= {name: now + pause_after(now - late.began_at) for name in late.names}
        if ready is None:
            return {}, None
        self._late = None
        self._rows |= ready.rows
        for rows in ready.rows.values():
            rows.alive = self._keep_alive
        ready.restamp(self._tables, time, self._keep_alive)
        self._looked_at = -math.inf  # a look compares them with what they were
        return self._begin_tables(ready.pinned, ready.stopped, time, pause_after(ready.seconds)), ready

    def _opened(self) -> Replication:
        """The stream of transactions. Raises Gap where there are none from the bound position on."""
        if self._stream is not None and clock.monotonic() - self._stream.read_at > IDLE_SECONDS:
            self._disconnect()
        if self._stream is None:
            self._relations.clear()
            stream = self._upstream.replicate()
            try:
                check_system(stream.system(), self._system())
                self._server_start = stream.server_start()
                start_at_slot(self._upstream, stream, self._positions.slot, self._positions.lsn, self._spec.publication)
            except BaseException:
                stream.close()
                raise
            self._stream = stream
        return self._stream

    def _system(self) -> System:
        system = self._positions.system
        assert system is not None
        return system

    def _progress(self, name: str, percent: int) -> None:
        self._show(f"snapshot: {name} {percent}%")

    def _show(self, activity: str) -> None:
        if not activity or not self._activity:
            self._active_since = clock.monotonic()
        self._activity = activity
