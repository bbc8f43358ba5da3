"""Writes a view to a Kafka topic: each time that has changes is one transaction, with the progress in it.

    progress: none                 a snapshot at `time`, in pieces by a hash of the key, each one transaction
    progress: piece 0 of 7         the topic is claimed, and no row is in it: as without progress
    progress: piece 3 of 7         the snapshot goes on, at the same time
    progress: time 4000            the shard's updates of (4000, time], a transaction for each time that has any

The topic and its progress say all that a publication needs, so any process may go on, after a death at any moment too:
a transaction is in the topic as a whole or not at all. An open session (session.py) saves reading the progress again.

Cost: the updates, and for keys that only come a look at the key columns of the row groups that may have them. Memory:
the updates of some times, or a piece of the snapshot. A view is not written at a time at which it has errors, or
several rows of a key: the topic keeps the rows of the last time without any.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, FilePart, ShardReader, consolidate
from tidemark_persist.files.spill import divide, row_hash
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import (
    IDLE_MS,
    DestinationFailed,
    DestinationStopped,
    Reached,
    SinkViewInError,
)
from tidemark_replica.sinks.destinations.shard_contents import IN_ERROR, bytes_about, check_no_errors, rows_of
from tidemark_replica.sinks.kafka.changes import (
    BYTES_MAX,
    MEMORY_BYTES_MAX,
    ROWS_MAX,
    NetChanges,
    TooManyUpdates,
    at_unique_times,
    read_changes,
)
from tidemark_replica.sinks.kafka.envelopes import Envelope, EnvelopeRecords
from tidemark_replica.sinks.kafka.progress import KafkaSinkProgress
from tidemark_replica.sinks.kafka.registered_schemas import RegisteredSchemas
from tidemark_replica.sinks.kafka.session import ProducerSession, committed_progress
from tidemark_replica.sinks.kafka.stop import (
    HISTORY_GONE,
    KEY_NOT_UNIQUE,
    KEY_UNFIT,
    SCHEMA_REPLACED,
    SINK_CHANGED,
    TIME_TOO_LARGE,
    VIEW_REPLACED,
    Overtaken,
)
from tidemark_replica.storage.kafka.connection import ReadSecret

PIECE_ROWS, PIECES_MAX = 100_000, 256
TOO_MANY = f"more than {ROWS_MAX:,} updates or {MEMORY_BYTES_MAX >> 20} MiB of them, which no transaction takes"
NONE = EnvelopeRecords(pa.array([], pa.large_string()), pa.array([], pa.large_string()))


@dataclass
class KafkaTopic:
    """A topic of a view. `view`: the Dataflow's uid and the export. One publication at a time."""

    view: str
    sink: KafkaSink
    read_secret: ReadSecret
    piece_rows: int = PIECE_ROWS
    _session: ProducerSession | None = None
    _schemas: RegisteredSchemas = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the session is in use."""
    _closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._schemas = RegisteredSchemas(self.sink, self.read_secret)

    def publish(self, shard: ShardReader, time: Time, term: WriterTerm) -> Reached:
        """Gives the topic the contents at `time`; changes nothing where it has those of that time or a later one.

        Raises DestinationStopped, DestinationFailed, SinkViewInError, Overtaken, NotReadable, StorageError,
        IngestionError: the topic has the contents of a time up to `time`, or some pieces of a snapshot, which its
        progress marks as incomplete.
        """
        try:
            with self._lock:
                return self._in_session(shard, time, term)
        finally:
            if self._closed.is_set():
                self.close()

    def progress_time(self, contents: str) -> Time | None:
        """The time of the topic's committed progress, where it is of these contents of the view; else None. Fences
        nobody. Raises DestinationStopped, IngestionError."""
        progress = committed_progress(self.sink, self.read_secret)
        is_same = progress is not None and (progress.view, progress.shard) == (self.view, contents)
        return Time(progress.time) if progress is not None and is_same else None

    def interrupt(self) -> None:
        """Ends a publication that runs before its next transaction, and then the session. Never waits."""
        self._closed.set()

    def close(self) -> None:
        """Ends the session, or interrupts the publication that has it. May be called on any thread."""
        self._closed.set()
        if self._lock.acquire(blocking=False):
            try:
                session, self._session = self._session, None
                if session is not None:
                    session.close()
            finally:
                self._lock.release()

    def _in_session(self, shard: ShardReader, time: Time, term: WriterTerm) -> Reached:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.check_topic()
                return self._publish(session, shard, time, term)
            except Overtaken:  # another replica had the turn meanwhile; this replica has it again
                session.close()
        return self._publish(ProducerSession(self.sink, self.view, term, self.read_secret), shard, time, term)

    def _publish(self, session: ProducerSession, shard: ShardReader, time: Time, term: WriterTerm) -> Reached:
        contents = shard.contents_id  # before anything is read: what changes later is found by the next publication
        try:
            check_key(shard.schema, self.sink.key)
            if session.progress is not None and session.progress.has_rows:
                check_progress(session.progress, contents, self.sink)
            format = self._schemas.format(shard.schema, is_new=session.progress is None)
            envelope = Envelope(self.sink.envelope, self.sink.key, format)
            publication = _Publication(
                shard, contents, session, self.sink, envelope, self.view, term, self.piece_rows, self._closed
            )
            return publication.publish(time)
        finally:
            self._session = session if session.is_open else None


def check_key(columns: pa.Schema, key: Sequence[str]) -> None:
    """Raises DestinationStopped where these columns of a view are no key."""
    types = {field.name: field.type for field in columns}
    for name in key:
        if name not in types or pa.types.is_floating(types[name]) or pa.types.is_nested(types[name]):
            raise DestinationStopped(
                KEY_UNFIT,
                f"key column {name} is no column of the view, or a floating number, array or struct, whose equal"
                " values may differ in their bits: correct the key",
            )


def check_progress(progress: KafkaSinkProgress, shard: str, sink: KafkaSink) -> None:
    """Raises DestinationStopped where the topic has records that are not of this shard and this sink. `shard`: the
    `contents_id`."""
    anew = f"give the sink another topic, or delete topics {sink.topic} and {sink.progress_topic}"
    if (progress.key, progress.envelope, progress.format) != (sink.key, sink.envelope, sink.format):
        raise DestinationStopped(
            SINK_CHANGED,
            f"topic {sink.topic} has records with key {', '.join(progress.key)} in envelope {progress.envelope} and"
            f" format {progress.format}: {anew}",
        )
    if progress.shard != shard:
        raise DestinationStopped(
            VIEW_REPLACED,
            f"topic {sink.topic} has the rows of an earlier table of the view, as its columns changed, or of before"
            f" another program changed the table: {anew}",
        )


@dataclass(frozen=True)
class _Publication:
    shard: ShardReader
    contents: str
    session: ProducerSession
    sink: KafkaSink
    envelope: Envelope
    view: str
    term: WriterTerm
    piece_rows: int
    closed: threading.Event

    def publish(self, time: Time) -> Reached:
        progress = self.session.progress
        if progress is None or not progress.has_rows:
            progress = self._first_snapshot(time)
        elif not progress.is_complete:
            progress = self._rest_of_snapshot(progress)
        self._check_shard(progress)
        checked = Time(progress.time)
        while checked < time:
            checked = self._advance(checked, time)
            assert self.session.progress is not None
            progress = self.session.progress
            if checked >= time > progress.time and time - progress.time >= IDLE_MS:
                progress = self._send(NONE, time)
        return Reached(Time(progress.time), checked)

    def _check_shard(self, progress: KafkaSinkProgress) -> None:
        sink = self.sink
        if progress.key_schema != self.envelope.format.key_schema:
            raise DestinationStopped(
                SCHEMA_REPLACED,
                f"the registry gives the schema of the keys id {self.envelope.format.key_schema}, and the records of"
                f" topic {sink.topic} have id {progress.key_schema}: with another one the same key would have other"
                f" bytes. Restore the registry's schemas with their ids, give the sink another topic, or delete topics"
                f" {sink.topic} and {sink.progress_topic}",
            )
        if self.shard.refresh().since > progress.time:
            raise DestinationStopped(
                HISTORY_GONE,
                f"the view's history since time {progress.time}, which topic {self.sink.topic} has, is compacted: which"
                f" keys are gone is not known. Give the sink another topic, or delete topics {self.sink.topic} and"
                f" {self.sink.progress_topic}: the view is written anew. A `history` that is longer than the longest"
                " standstill, and than the snapshot takes, prevents it",
            )

    def _advance(self, reached: Time, time: Time) -> Time:
        """Sends the next times up to `time`; the last one that was looked at. Raises SinkViewInError."""
        with self.shard.lease():
            changes = self._changes(reached, time)
            for at, rows in changes.by_time():
                self._send(self.envelope.records(rows, at), at)
        if changes.not_unique is not None and changes.upper > time:
            raise self._not_unique(changes.not_unique)
        if changes.in_error and changes.upper > time:
            raise SinkViewInError(IN_ERROR.format(f"topic {self.sink.topic}"))
        return changes.good

    def _changes(self, reached: Time, time: Time) -> NetChanges:
        """The changes of as many times after `reached` as are held in memory. Raises DestinationStopped."""
        end = Time(time + 1)
        while True:
            parts = self.shard.listen(reached + 1, end)
            is_one = end == reached + 2
            try:
                if not is_one and _is_much(parts):
                    raise TooManyUpdates
                changes = self._read(reached, parts, end)
                if not changes.is_held or changes.good > reached or end > time:
                    return changes
            except TooManyUpdates:
                if is_one:
                    raise DestinationStopped(
                        TIME_TOO_LARGE,
                        f"time {end - 1} has {TOO_MANY}: give the sink another topic, or delete it and its progress"
                        " topic: the view is written anew in pieces",
                    ) from None
                end = Time((reached + 1 + end) // 2 if end - reached > 3 else reached + 2)
                continue
            return self._healed(reached, time)

    def _read(self, reached: Time, parts: list[FilePart], end: Time) -> NetChanges:
        return at_unique_times(self.shard, reached, read_changes(self.shard, parts, end), self.envelope)

    def _healed(self, reached: Time, time: Time) -> NetChanges:
        """The changes of times of which the first ones are in error, or have keys that are not unique, as a whole."""
        try:
            return self._read(reached, self.shard.listen(reached + 1, time + 1), Time(time + 1))
        except TooManyUpdates:
            raise DestinationStopped(
                TIME_TOO_LARGE,
                f"the view has had rows in error, or keys that are not unique, since time {reached}, and {TOO_MANY}:"
                " give the sink another topic, or delete it and its progress topic",
            ) from None

    def _send(self, records: EnvelopeRecords, time: Time, pieces: int = 0, done: int = 0) -> KafkaSinkProgress:
        self._check_open()
        shard, topic_id = self.contents, self.session.topic_id
        sink = self.sink
        schema = self.envelope.format.key_schema
        progress = KafkaSinkProgress(
            self.view, shard, time, self.term, topic_id, sink.key, sink.envelope, pieces, done, sink.format, schema
        )
        self.session.send(records, progress, is_snapshot=pieces > 0)
        return progress

    def _first_snapshot(self, time: Time) -> KafkaSinkProgress:
        """Claims the topic, checks all keys, and sends all pieces."""
        with self.shard.lease():
            check_no_errors(self.shard, time, f"topic {self.sink.topic}")
            parts = self.shard.snapshot_parts(time)
            pieces = min(-(-sum(part.rows_about for part in parts) // self.piece_rows), PIECES_MAX) or 1
            if pieces > 1:
                if self.session.progress is None:
                    self._send(NONE, time, pieces)
                for rows in self._divide_contents(parts, pieces):
                    self._checked(rows, time)
            return self._send_pieces(parts, time, pieces, 0)

    def _rest_of_snapshot(self, progress: KafkaSinkProgress) -> KafkaSinkProgress:
        """Sends the pieces that are missing, at the time of the others."""
        with self.shard.lease():
            self._check_shard(progress)
            time = Time(progress.time)
            check_no_errors(self.shard, time, f"topic {self.sink.topic}")
            return self._send_pieces(self.shard.snapshot_parts(time), time, progress.pieces, progress.done)

    def _send_pieces(self, parts: list[FilePart], time: Time, pieces: int, done: int) -> KafkaSinkProgress:
        for number, rows in enumerate(self._divide_contents(parts, pieces)):
            if number >= done:
                records = self.envelope.records(self._checked(rows, time), time, snapshot=True)
                progress = self._send(records, time, pieces, number + 1)
        return progress

    def _check_open(self) -> None:
        if self.closed.is_set():
            raise DestinationFailed(f"topic {self.sink.topic}: the sink was stopped")

    def _checked(self, rows: pa.Table, time: Time) -> pa.Table:
        """The rows of whole keys, once each. Raises DestinationStopped, DestinationFailed."""
        self._check_open()
        keys = self.envelope.keys(rows)
        if pc.any(pc.not_equal(rows.column(DIFF), 1)).as_py() or pc.count_distinct(keys).as_py() < len(keys):
            raise self._not_unique(time)
        return rows

    def _not_unique(self, time: Time) -> DestinationStopped:
        return DestinationStopped(
            KEY_NOT_UNIQUE,
            f"several rows of the view have one key ({', '.join(self.sink.key)}) from time {time} on: topic"
            f" {self.sink.topic} stays as it is until each key has one row again. Correct the data or the view's SQL,"
            " or give another key and another topic",
        )

    def _divide_contents(self, parts: list[FilePart], pieces: int) -> Iterator[pa.Table]:
        """Yield the contents, divided by the key: the same pieces in every process."""
        key = list(self.sink.key)
        schema = pa.schema([*self.shard.schema, pa.field(DIFF, pa.int64())])

        def piece_of(table: pa.Table) -> np.ndarray:
            found: np.ndarray = row_hash(table.select(key)) % np.uint64(pieces)
            return found

        with closing(divide(rows_of(parts, schema), schema, pieces, piece_of)) as divided:
            for tables in divided:
                yield consolidate(pa.concat_tables([schema.empty_table(), *tables]))


def _is_much(parts: list[FilePart]) -> bool:
    return bytes_about(parts) > BYTES_MAX or sum(part.rows_about for part in parts) > ROWS_MAX
