"""The ingestions of a replica, one thread each, and one pool of Spark's fair scheduler each: the tasks of one source do
not wait for another source's, or for a step's.

    run(RunIngestion) ──► thread: recover, tick, tick, ... ──► poll() -> ShardFrontiers, IngestionStatus

A thread ends when it is fenced or dropped. All other failures are reported and retried with growing pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

from pyspark.sql import SparkSession

from tidemark_persist import Fenced, ShardWriters
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus, ShardFrontiers, StorageResponse, TableReport
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    FilesSource,
    IngestionDescription,
    IntrospectionSource,
    NexmarkSource,
    PostgresSource,
    PublicationTable,
    SourceSpec,
    SourceTable,
    WrittenSource,
)
from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_replica.storage.bucket_options import bucket_options
from tidemark_replica.storage.clock import ControllerClock, tick_at, wall_clock_ms
from tidemark_replica.storage.delta.copies.table_copies import TableCopies
from tidemark_replica.storage.delta.inspect import tables_of as delta_tables
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.files.inspect import tables_of as files_tables
from tidemark_replica.storage.files.source import FilesIngestion
from tidemark_replica.storage.ingester import Ingester, ShardMoved
from tidemark_replica.storage.introspection.contents import ContentsSlot, ReceivedDocument, receive
from tidemark_replica.storage.introspection.source import IntrospectionIngestion
from tidemark_replica.storage.introspection.source import tables_of as introspection_tables
from tidemark_replica.storage.kafka.inspect import tables_of as kafka_tables
from tidemark_replica.storage.kafka.source import KafkaIngestion
from tidemark_replica.storage.leftovers import Leftovers
from tidemark_replica.storage.nexmark.source import NexmarkIngestion
from tidemark_replica.storage.nexmark.tables import TABLES as NEXMARK_TABLES
from tidemark_replica.storage.postgres.inspect import tables_of as postgres_tables
from tidemark_replica.storage.postgres.published import published_tables
from tidemark_replica.storage.postgres.slots import release as release_postgres
from tidemark_replica.storage.postgres.source import PostgresIngestion
from tidemark_replica.storage.source import AWAITS_SECONDS, Source
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.storage.table_reports import TableErrors, table_reports
from tidemark_replica.storage.tpch.initial import check_scale_factor
from tidemark_replica.storage.tpch.source import TpchIngestion
from tidemark_replica.storage.tpch.tables import TABLES as TPCH_TABLES
from tidemark_replica.storage.written.inbox import PendingWrite, WriteInbox
from tidemark_replica.storage.written.inspect import tables_of as written_tables
from tidemark_replica.storage.written.receive import Receiver, WriteHeader
from tidemark_replica.storage.written.refusal import WriteNotPossible
from tidemark_replica.storage.written.source import WrittenIngestion
from tidemark_replica.storage.written.spool import WriteSpool
from tidemark_replica.values.failure_text import log_text, public_text_with_type

LOG = logging.getLogger(__name__)
MESSAGE_LENGTH_MAX = 1000
RETRY_STOPPED_S = 30.0
"""A source with a stopped table that a new beginning may help begins again after so long."""
Inbox = WriteInbox | ContentsSlot
ReceivedCall = PendingWrite | ReceivedDocument
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class IngestionThreads:
    """Starts and stops ingestions. No method that the command loop calls blocks."""

    def __init__(
        self,
        session: SparkSession,
        shards: ShardWriters,
        cache: Path,
        secrets: SourceSecrets | None = None,
        spool: WriteSpool | None = None,
    ) -> None:
        self._session, self.shards, self._cache = session, shards, cache
        self.secrets = secrets or SourceSecrets(None)
        self._spool = spool or WriteSpool(cache / "writes")
        self._running: dict[GlobalId, _Ingestion] = {}
        self._ending: list[_Ingestion] = []
        self._copies: dict[GlobalId, TableCopies] = {}
        self._dropped_copies: list[TableCopies] = []

    def run(self, command: RunIngestion, clock: ControllerClock) -> None:
        """Starts the ingestion, or replaces the one of the same id where it differs. `clock`: the controller's, as of
        the command."""
        running = self._running.get(command.ingestion.id)
        if running is not None and running.is_same(command):
            running.clock, running.requests = clock, command.requests
            return
        if running is not None:
            self._end(running)
        new = _Ingestion(self, command, clock, after=running)
        self._running[command.ingestion.id] = new
        new.start()

    def end_copies(self, id: GlobalId) -> None:
        """Gives up the copies of the ingestion."""
        if (copies := self._copies.pop(id, None)) is not None:
            copies.close()
            self._dropped_copies = [*filter(TableCopies.is_busy, self._dropped_copies), copies]

    def drop(self, id: GlobalId) -> None:
        self.end_copies(id)
        if running := self._running.pop(id, None):
            self._end(running)
            running.interrupt()

    def _end(self, running: _Ingestion) -> None:
        running.stop()
        self._ending = [*filter(_Ingestion.is_alive, self._ending), running]

    def is_alive(self, id: GlobalId) -> bool:
        """Whether the ingestion runs, or has not ended yet. Callable from any thread."""
        running = self._running.get(id)
        return any(each.description.id == id and each.is_alive() for each in (running, *self._ending) if each)

    def is_ending(self, location: str) -> bool:
        """Whether an ingestion that was dropped or replaced may still write at the location."""
        copies = (*self._copies.values(), *self._dropped_copies)
        if any(each.writes(location) for each in copies):
            return True
        return any(ending.writes(location) and ending.is_alive() for ending in self._ending)

    def write(self, id: GlobalId, header: WriteHeader, pieces: Iterable[bytes]) -> ReceivedCall:
        """Receives a call of a source whose rows clients write, which is answered at a tick, or one of the operator
        with the rows of its relations. Callable from any thread. Raises WriteRefused, WriteNotPossible, and what
        `pieces` raises."""
        running = self._running.get(id)
        if running is None or running.inbox is None:
            raise WriteNotPossible("this replica does not ingest the DataSource; repeat the call")
        spec = running.description.source
        if isinstance(running.inbox, ContentsSlot):
            assert isinstance(spec, IntrospectionSource)
            return running.inbox.put(receive(spec, header, pieces))
        assert isinstance(spec, WrittenSource)
        return running.inbox.put(Receiver(spec, self._spool).receive(header, pieces))

    def poll(self) -> list[StorageResponse]:
        """The statuses and frontiers that have changed since the last call."""
        return [response for ingestion in self._running.values() for response in ingestion.changes()]

    def report_again(self) -> None:
        """The next poll returns everything, for a new client."""
        for ingestion in self._running.values():
            ingestion.report_again()

    def inspect(self, spec: SourceSpec, pinned: IngestionDescription | None = None) -> tuple[SourceTable, ...]:
        """The tables that the source offers; slow, so not for the command loop. `pinned`: the source that these tables
        are added to, if they are. Raises IngestionError."""
        if isinstance(spec, FilesSource):
            return files_tables(self._session, spec, bucket_options(spec, self.secrets.read), pinned)
        if isinstance(spec, DeltaSource):
            return delta_tables(spec, bucket_options(spec, self.secrets.read))
        if isinstance(spec, PostgresSource):
            return postgres_tables(spec, partial(self.secrets.read, spec.secret))
        if isinstance(spec, KafkaSource):
            return kafka_tables(spec, self.secrets.read, pinned)
        if isinstance(spec, WrittenSource):
            return written_tables(spec)
        if isinstance(spec, IntrospectionSource):
            return introspection_tables(spec)
        if isinstance(spec, NexmarkSource):
            return tuple(NEXMARK_TABLES.values())
        check_scale_factor(spec.scale_factor)
        return tuple(TPCH_TABLES.values())

    def find_published(self, spec: PostgresSource) -> tuple[tuple[PublicationTable, ...], int]:
        """The tables of the publication that the source does not name, and the number of those that were not examined;
        slow, so not for the command loop. Raises IngestionError."""
        return published_tables(spec, partial(self.secrets.read, spec.secret))

    def close(self, timeout_s: float = 10.0) -> None:
        """Stops all ingestions and waits at most `timeout_s` seconds for their threads."""
        for ingestion in self._running.values():
            ingestion.stop()
        for copies in self._copies.values():
            copies.close()
        deadline = monotonic() + timeout_s
        for ingestion in self._running.values():
            ingestion.join(max(0.0, deadline - monotonic()))
        for copies in self._copies.values():
            copies.join(max(0.0, deadline - monotonic()))
        self._running.clear()

    def source_for(self, description: IngestionDescription, inbox: Inbox | None = None) -> Source:
        """The source, for the thread that calls it alone. `inbox`: that of the description (`_inbox`)."""
        spec = description.source
        if isinstance(spec, WrittenSource):
            assert isinstance(inbox, WriteInbox)
            return WrittenIngestion(spec, inbox)
        if isinstance(spec, IntrospectionSource):
            assert isinstance(inbox, ContentsSlot)
            return IntrospectionIngestion(inbox)
        if isinstance(spec, FilesSource):
            # a property of this thread: jobs of one pool wait for each other
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", f"source {description.id}")
            return FilesIngestion(spec, self._session, bucket_options(spec, self.secrets.read))
        if isinstance(spec, DeltaSource):
            copies = self._copies.setdefault(description.id, TableCopies())
            return DeltaIngestion(spec, bucket_options(spec, self.secrets.read), copies)
        if isinstance(spec, PostgresSource):
            return PostgresIngestion(spec, description.id, partial(self.secrets.read, spec.secret))
        if isinstance(spec, KafkaSource):
            return KafkaIngestion(spec, self.secrets.read)
        if isinstance(spec, NexmarkSource):
            return NexmarkIngestion(spec)
        return TpchIngestion(spec, self._cache)


def _inbox(description: IngestionDescription) -> Inbox | None:
    """Where calls wait for the source, if it takes any."""
    if isinstance(description.source, WrittenSource):
        return WriteInbox(description.name)
    return ContentsSlot(description.tick_ms) if isinstance(description.source, IntrospectionSource) else None


def release(description: IngestionDescription, secrets: SourceSecrets) -> None:
    """Drops the replication slots of a deleted source; other kinds keep nothing upstream. Raises IngestionError."""
    spec = description.source
    if isinstance(spec, PostgresSource):
        release_postgres(description, spec, partial(secrets.read, spec.secret))


class _Ingestion(threading.Thread):
    """The thread of one ingestion."""

    def __init__(
        self, manager: IngestionThreads, command: RunIngestion, clock: ControllerClock, after: _Ingestion | None
    ) -> None:
        super().__init__(name=f"ingest-{command.ingestion.name}", daemon=True)
        self.clock, self.requests = clock, command.requests
        self._manager, self._command, self._after = manager, command, after
        self.description = command.ingestion
        self.inbox = _inbox(command.ingestion)
        self._halt = threading.Event()
        self._lock = threading.Lock()
        self._ticked = False
        self._source: Source | None = None
        self._errors = TableErrors()
        self._leftovers = Leftovers()
        self._status = IngestionStatus(command.ingestion.id, "waiting", "starting")
        self._uppers: dict[str, ShardFrontiers] = {}
        self._reported: dict[str, StorageResponse] = {}

    def is_same(self, command: RunIngestion) -> bool:
        mine = self._command
        return self.is_alive() and (mine.ingestion, mine.term) == (command.ingestion, command.term)

    def writes(self, location: str) -> bool:
        tables = (table.shard.location for table in self.description.tables)
        return location in {self.description.remap_location, *tables}

    def stop(self) -> None:
        self._halt.set()

    def interrupt(self) -> None:
        """End what the source waits for, after `stop`. A source that is made later is not begun (`_ingest`)."""
        if (source := self._source) is not None:
            source.interrupt()

    def changes(self) -> list[StorageResponse]:
        with self._lock:
            activity = self._manager.secrets.scrub(self._source.activity()) if self._source is not None else ""
            now: dict[str, StorageResponse] = {"status": replace(self._status, activity=activity), **self._uppers}
            changes = [response for key, response in now.items() if self._reported.get(key) != response]
            self._reported = now
        return changes

    def report_again(self) -> None:
        with self._lock:
            self._reported = {}

    def run(self) -> None:
        if self._after is not None:
            self._after.join()  # two ingesters of one term would race
            self._after = None
        try:
            self._ingest_again_and_again()
        finally:
            if isinstance(self.inbox, WriteInbox):
                self.inbox.close()

    def _ingest_again_and_again(self) -> None:
        """Run the ingestion, and after a failure again, until it is stopped or fenced."""
        failures = 0
        while not self._halt.is_set():
            self._ticked = False
            try:
                self._ingest()
            except Fenced as error:
                self._manager.end_copies(self.description.id)
                self._set_status("fenced", str(error))
                return
            except ShardMoved as error:
                self._set_status("waiting", str(error))
            except BaseException as error:  # a Rust panic is no Exception; it is retried, too
                LOG.warning("source %s: %s", self.description.name, log_text(error))
                self._fail(public_text_with_type(error))
                failures = 1 if self._ticked else failures + 1
            self._halt.wait(_BACKOFF_S[min(failures, len(_BACKOFF_S)) - 1] if failures else 0.1)

    def _ingest(self) -> None:
        """Recovers, then ticks until stopped. Raises every failure."""
        source = self._source = self._manager.source_for(self.description, self.inbox)
        try:
            if self._halt.is_set():
                return  # `interrupt` may have found no source
            shards, term = self._manager.shards, self._command.term
            self._tick_until_halt(source, Ingester(self.description, term, source, shards, self._leftovers))
        finally:
            source.close()

    def _tick_until_halt(self, source: Source, ingester: Ingester) -> None:
        tick_ms = self.description.tick_ms
        self._errors.begin()
        ingester.recover()
        self._observe(ingester)
        retry_at = monotonic() + RETRY_STOPPED_S
        while not self._halt.is_set():
            if source.retries() and monotonic() > retry_at:
                return  # the ingestion begins again, and asks whether the tables can go on
            source.ask(self.requests)
            time = tick_at(wall_clock_ms(), tick_ms)
            bound, pause = self.clock.bound(), self._until_next(tick_ms)
            if time > bound:
                self._set_status(
                    "waiting",
                    f"ClockSkew: this replica's tick {time} is past the controller's bound {bound}; set the clock",
                )
            elif (awaited := source.reason_to_wait()) is not None:
                pause = min(pause, AWAITS_SECONDS)
                if awaited:
                    self._set_status("waiting", awaited)
            elif ingester.tick(time):
                self._ticked = True
                ingester.run_ahead(bound)
                self._observe(ingester)
                self._report(source, ingester)
                self._maintain(ingester)
                pause = self._until_next(tick_ms)
            self._halt.wait(pause)

    def _report(self, source: Source, ingester: Ingester) -> None:
        """Report a tick. Counters, files and tables are reported together with the state."""
        stopped = {name: self._manager.secrets.scrub(text) for name, text in source.stop_reasons().items()}
        self._errors.record_stopped(stopped, Time(wall_clock_ms()))
        tables = table_reports(ingester.table_shards(), source.progress(), stopped, self._errors)
        text = "; ".join(stopped.values())[:MESSAGE_LENGTH_MAX]
        status = IngestionStatus(
            self.description.id,
            "stopped" if text else "running",
            self._manager.secrets.scrub(text or source.warning()),
            dict(source.counters()),
            source.files(),
            source.outcomes(),
            tables=tables,
        )
        with self._lock:
            self._status = status

    def _fail(self, message: str) -> None:
        """The whole source failed: every table of it, however far it is."""
        text = self._manager.secrets.scrub(message)[:MESSAGE_LENGTH_MAX]
        names = [table.table.name for table in self.description.tables]
        self._errors.failed(names, text, Time(wall_clock_ms()))
        with self._lock:
            known = {table.table: table for table in self._status.tables}
            failed = tuple(self._errors.add_to(known.get(name, TableReport(name))) for name in names)
            self._status = replace(self._status, state="failed", message=text, tables=failed)

    def _maintain(self, ingester: Ingester) -> None:
        ingester.compact_remap()
        for shard in ingester.shards():
            for work in shard.maintenance_due():
                shard.run_maintenance(work)

    def _until_next(self, tick_ms: int) -> float:
        """Seconds until the clock passes the next tick."""
        return (tick_ms - wall_clock_ms() % tick_ms) / 1000

    def _observe(self, ingester: Ingester) -> None:
        uppers: dict[str, ShardFrontiers] = {}
        for table, shard in ingester.table_shards():
            state, id = shard.state(), table.shard.shard_id
            uppers[id] = ShardFrontiers(id, Frontier.decode(state.upper), Frontier.decode(state.since))
        with self._lock:
            self._uppers = uppers

    def _set_status(self, state: str, message: str = "") -> None:
        """Counters, files, outcomes and tables stay as they were."""
        with self._lock:
            self._status = replace(self._status, state=state, message=self._manager.secrets.scrub(message))
