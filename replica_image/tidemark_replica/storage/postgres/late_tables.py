"""Tables that begin, or begin anew, while the others of their source go on.

    temporary slot at L ─► contents at L ─► changes from L on, by the same slot ─► near the others ─► handed over at Q
    the others   ●────●────●────●────●────●────●────●────●────●────●────●────●────●────●────● P ──► read on to Q

A thread of its own does this. The others wait for it only at the end, from the moment at which it is near them: they
say that they are at P, and it hands over at some Q >= P. It has all transactions that were committed before Q, and the
others' stream gives those after Q. Nothing of it is durable before a binding names its files: a process that dies
leaves files that vacuum removes, and a slot that ends with its connection; then the tables begin again.

Files have the time at which this began. Where a table has no rows yet, its shard gives up all times before the binding;
else the files are a difference, and get the time of the binding.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psycopg

from tidemark_persist import StagedFile, remove_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import IngestionError, SourceNotReady, TableStopped
from tidemark_replica.storage.postgres.changes import TableChanges
from tidemark_replica.storage.postgres.connection import Credentials, Replication, System, Upstream
from tidemark_replica.storage.postgres.contents.copied_tables import CopiedTable, copy_tables, restamped, smallest
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot, SnapshotTables
from tidemark_replica.storage.postgres.keyed.rows import KeyedRows
from tidemark_replica.storage.postgres.pgoutput import lsn_text
from tidemark_replica.storage.postgres.relations import PinnedTable
from tidemark_replica.storage.postgres.slots import SLOT_PAUSE_S, SLOT_TRIES, end_reader
from tidemark_replica.storage.postgres.tick import Tick
from tidemark_replica.storage.postgres.watch import check_system, slot_state, wait_until_visible
from tidemark_replica.values.failure_text import public_text_with_type

PAUSE_S = 0.1
WAIT_S = 5.0
"""The others wait at most so long for the last changes, before they go on and ask again."""
ALIVE_S = 5.0


class BehindTheOthers(IngestionError):
    """Late tables would join at a position that the others have passed: changes between the two would be lost."""


@dataclass(frozen=True)
class ReadyTables:
    """Tables as they were at the position `lsn`. `pinned`, `staged`, `rows`: by table. `stopped`: why others of them
    cannot begin. `tick`: what the stream told of them since their contents. `seconds`: how long all that took."""

    lsn: int
    pinned: dict[str, PinnedTable]
    staged: dict[str, list[StagedFile]]
    rows: dict[str, KeyedRows]
    stopped: dict[str, TableStopped]
    tick: Tick
    seconds: float

    def restamp(self, tables: Mapping[str, CopiedTable], time: Time, alive: Callable[[], None]) -> None:
        """Gives the files of tables that have rows the time of the binding; deletes all files if that fails."""
        try:
            for name, files in self.staged.items():
                if tables[name].shard.state().upper > 0:
                    self.staged[name] = restamped(tables[name].shard, files, time, alive)
        except BaseException:
            for name, files in self.staged.items():
                remove_staged(tables[name].shard.location, files)
            raise


class LateTables:
    """`tables`: the due tables. The smallest of them begin first; once their sizes are known, `names` has these alone.
    `slot`: the name of the temporary slot. The others are at the position `lsn`. The thread begins at once."""

    def __init__(
        self,
        spec: PostgresSource,
        credentials: Credentials,
        slot: str,
        system: System,
        tables: Mapping[str, CopiedTable],
        time: Time,
        lsn: int,
    ) -> None:
        self.names = list(tables)
        self.percent: dict[str, int] = {}
        self.activity = ""
        self.began_at = clock.monotonic()
        self.position = 0
        """The tables have what was committed before it; 0 before their contents are there."""
        self._upstream = Upstream(spec, credentials)
        self._spec, self._slot, self._system = spec, slot, system
        self._tables, self._time = dict(tables), time
        self._stream: Replication | None = None
        self._alive_at = 0.0
        self._changes: dict[str, TableChanges] = {}
        self._rows: dict[str, KeyedRows] = {}
        self._moved = threading.Condition()
        self._others, self._target = lsn, 0
        self._is_near = self._is_ending = self._has_ended = False
        self._ready: ReadyTables | None = None
        self._failure: IngestionError | None = None
        self._thread = threading.Thread(target=self._run, name="postgres-late-tables", daemon=True)
        self._thread.start()

    def hand_over(self, lsn: int, alive: Callable[[], None]) -> ReadyTables | None:
        """The tables at a position that is not before `lsn`, which the others have; None if that would take long.
        After it was given, the caller has the files and rows. `alive` is called now and then.

        Raises:
            IngestionError: the tables cannot begin now.
        """
        with self._moved:
            self._others = lsn
            if self._is_near and not self._has_ended:
                self._target = lsn
                self._moved.notify_all()
                self._moved.wait_for(lambda: self._has_ended, WAIT_S)
                while self._is_ending and not self._has_ended:
                    alive()
                    self._moved.wait_for(lambda: self._has_ended, WAIT_S)
                if not self._has_ended:
                    self._target, self._is_near = 0, False
            if not self._has_ended:
                return None
            ready, self._ready = self._ready, None
        if self._failure is not None:
            raise self._failure
        assert ready is not None
        if ready.pinned and ready.lsn < lsn:
            self._discard()
            raise BehindTheOthers(
                f"it is at {lsn_text(ready.lsn)}, which the other tables passed: they are at {lsn_text(lsn)}"
            )
        return ready

    @property
    def is_waiting(self) -> bool:
        """Whether the others are to ask for the tables, which are near or have ended."""
        return self._is_near or self._has_ended

    def cancel(self) -> None:
        """Callable from any thread."""
        self._upstream.interrupted.set()

    def close(self) -> None:
        """Gives everything up, and waits for the end of the thread."""
        self.cancel()
        self._thread.join()
        if self._ready is not None:
            self._discard()

    def _run(self) -> None:
        try:
            with self._upstream.errors():
                self._ready = self._begin()
        except IngestionError as error:
            self._failure = error
        except BaseException as error:  # panics of Rust, too, end this table alone
            self._failure = IngestionError(public_text_with_type(error))
        try:
            if self._failure is not None:
                self._discard()
        finally:
            with self._moved:
                self._has_ended = True
                self._moved.notify_all()

    def _discard(self) -> None:
        for changes in self._changes.values():
            changes.discard()
        for rows in self._rows.values():
            rows.close()

    def _begin(self) -> ReadyTables:
        replication = self._upstream.replicate()
        try:
            check_system(replication.system(), self._system)
            with self._upstream.connect() as connection:
                tables = smallest(connection, list(self._tables.values()))
            self.names = [table.spec.name for table in tables]
            self.activity = "waiting for a slot, until the transactions that run upstream have ended"
            lsn, exported = self._made_slot(replication)
            self.activity = "snapshot: " + ", ".join(self.names)
            snapshot = Snapshot(self._upstream, self._spec, exported, self._copied_percent)
            copied = copy_tables(snapshot, tables, self._time)
            tick = self._followed(copied, lsn)
            replication.start(self._slot, lsn, self._spec.publication)
            self._stream = replication
            self.activity = "changes since the snapshot: " + ", ".join(copied.pinned)
            lsn = self._read(tick, replication, lsn) if copied.pinned else lsn
            staged = tick.finish()
        finally:
            self._stream = None
            replication.close()
        stopped = copied.stopped | tick.stopped
        for name in stopped.keys() & self._rows.keys():
            self._rows.pop(name).close()
        pinned = {name: each for name, each in copied.pinned.items() if name not in stopped}
        return ReadyTables(lsn, pinned, staged, self._rows, stopped, tick, clock.monotonic() - self.began_at)

    def _made_slot(self, replication: Replication) -> tuple[int, str]:
        for tries in range(SLOT_TRIES + 1):
            try:
                return replication.create_slot(self._slot, temporary=True)
            except psycopg.errors.DuplicateObject:
                if tries == SLOT_TRIES:
                    raise
            self._upstream.check_goes_on()
            clock.sleep(SLOT_PAUSE_S)
            if tries == SLOT_TRIES - 1:
                self._end_slot()
        raise AssertionError

    def _end_slot(self) -> None:
        """Ends the slot of the name, which is of an earlier try: its machine is gone, and the server does not know."""
        with self._upstream.connect() as connection:
            state = slot_state(connection, self._slot)
            if state is not None and state.active_pid is not None:
                end_reader(connection, state)

    def _copied_percent(self, name: str, percent: int) -> None:
        self.percent[name] = percent
        self.activity = f"snapshot: {name} {percent}%"

    def _followed(self, copied: SnapshotTables, lsn: int) -> Tick:
        tick = Tick(self._spec, {}, lsn)
        for name, pinned in copied.pinned.items():
            table = self._tables[name]
            rows = self._rows[name] = KeyedRows(table.shard, pinned.key, self._keep_alive)
            files, malformed = copied.staged[name], copied.malformed[name]
            changes = TableChanges(table.ingested, table.shard, pinned, rows, self._time, files, lsn, malformed)
            self._changes[name] = changes
            tick.add(changes)
        self._renew()
        return tick

    def _renew(self) -> None:
        for changes in self._changes.values():
            changes.renew(self._keep_alive)

    def _read(self, tick: Tick, stream: Replication, begin: int) -> int:
        """Reads until the others wait for it, and it is where they are. Returns its position.

        Work that may take long is done before they wait, or while they wait for WAIT_S at most: the rows of a table are
        read as a change seeks one by its key, and files that are old are copied."""
        self.position = begin
        with self._upstream.connect_for_long() as catalogue:
            while True:
                target = self._target
                read = tick.read(stream, target)
                self._wait_until_visible(catalogue, tick)
                before, self.position = self.position, max(read, stream.sent)
                stream.confirm(self.position)
                is_staged = self.position >= self._others and (target > 0 or not self._is_near)
                if is_staged:
                    tick.flush()
                    self._renew()
                with self._moved:
                    self._is_near = self.position >= self._others
                    is_there = is_staged and self._target and self.position >= self._target
                    if is_there or not tick.has_tables:
                        self._is_ending = True
                        return self.position
                    if self.position == before and not self._target:
                        self._moved.wait(PAUSE_S)
                self._upstream.check_goes_on()

    def _wait_until_visible(self, catalogue: psycopg.Connection, tick: Tick) -> None:
        """The next look at the catalogue must see what these transactions did. A standby may let them wait for long."""
        while tick.transactions:
            try:
                wait_until_visible(self._upstream, catalogue, tick.transactions, self._keep_alive)
                del tick.transactions[:]
            except SourceNotReady:
                self._upstream.check_goes_on()

    def _keep_alive(self) -> None:
        """The server ends a stream whose reader gives no answer for long. Raises SourceNotReady after an interrupt."""
        self._upstream.check_goes_on()
        if self._stream is not None and clock.monotonic() - self._alive_at > ALIVE_S:
            self._alive_at = clock.monotonic()
            self._stream.confirm(self.position)
