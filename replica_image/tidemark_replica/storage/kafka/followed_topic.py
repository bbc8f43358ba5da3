"""One table and its topic: reads new records, a bounded number of bytes at a time, into staged files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer

from tidemark_persist import Shard, StagedFile, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.by_key.debezium import DebeziumEnvelopes
from tidemark_replica.storage.kafka.by_key.opened import open_upsert
from tidemark_replica.storage.kafka.by_key.records import KeyedRecords, KeyedUpdates
from tidemark_replica.storage.kafka.decoding import decoder_of, key_decoder_of
from tidemark_replica.storage.kafka.framing import TooManySchemas
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.reader import BATCH_RECORDS, TopicReader
from tidemark_replica.storage.kafka.rows import DEAD_LETTER_COLUMNS, RowMaker, columns_of
from tidemark_replica.storage.kafka.stop import GAPS, OFFSET_GONE, TOO_MANY_ERRORS, TOPIC_REPLACED, TRUNCATED
from tidemark_replica.storage.kafka.topics import Topic, Topics
from tidemark_replica.storage.schema_registry import SchemaRegistry
from tidemark_replica.values.arrow_types import arrow_schema

LOG = logging.getLogger(__name__)
WAIT_SECONDS = 0.5
"""How long a table waits for records that it knows of, or for the end of a partition."""
Destination = tuple[IngestedTable, Shard]


@dataclass
class Progress:
    """One table's part of a binding: its position, and staged files of the table and of its dead letters."""

    position: Position
    rows: StagedFile | None = None
    letters: StagedFile | None = None


class FollowedTopic:
    """A table's topic. `registry`: what knows the schemas of framed records. `open_consumer` makes a client. Raises
    SourceUnusable."""

    def __init__(
        self, table: KafkaTable, registry: SchemaRegistry | None, open_consumer: Callable[[], Consumer]
    ) -> None:
        self.table, self._open_consumer = table, open_consumer
        self._decoder, self._key_decoder = decoder_of(table, registry), key_decoder_of(table, registry)
        self._schema = arrow_schema(columns_of(table))
        self._reader: TopicReader | None = None
        self._destination: Destination | None = None
        self._letters: Destination | None = None
        self.keyed: KeyedRecords | None = None
        """The table's rows by key, where it has one."""
        self.malformed, self.repeated = 0, 0
        self._unbound = (0, 0)
        """Malformed records and repeated events that were read and are not bound yet."""
        self._records_max = BATCH_RECORDS
        """Of a batch: a quarter after a batch of too many schemas, and twice as many after each read without one."""

    @property
    def problem(self) -> str:
        """The reason why no records come; empty while they do."""
        return self._reader.problem if self._reader is not None else ""

    def set_destinations(self, table: Destination, letters: Destination | None) -> None:
        """Sets the tables that take the rows and the dead letters."""
        self._destination, self._letters = table, letters
        self.end()
        if self._key_decoder is not None:
            self.keyed = KeyedRecords(self.table, self._schema, self._decoder, self._key_decoder, table[1])

    def begin(self, topics: Topics) -> Position:
        """The position at which the table begins. Raises TableStopped, BrokersAway."""
        topic = self.described(topics)
        return Position(topic.id, topics.start(self.table, topic))

    def described(self, topics: Topics) -> Topic:
        """The topic as the brokers describe it now. Raises TableStopped, BrokersAway."""
        found = topics.describe([self.table.topic])[self.table.topic]
        if isinstance(found, TableStopped):
            raise found
        return found

    def read(self, bound: Position, time: Time, bytes_max: int, seconds: float) -> Progress:
        """Reads the records after `bound`, about `bytes_max` bytes of them, for `seconds` at most, and stages their
        rows at `time`. The caller checks afterwards that the topic is still the bound one. Raises TableStopped,
        BrokersAway, RegistryAway, StorageError; no file stays staged then."""
        if self._reader is None:
            self._reader = TopicReader(self._open_consumer(), self.table.topic, bound.offsets, bound.epochs)
        self._reader.records_max = self._records_max
        assert self._destination is not None
        events = DebeziumEnvelopes(bound.event_places)
        maker = self._maker(time, bytes_max, events)
        wait = 0.0 if self._reader.problem else min(WAIT_SECONDS, seconds)
        batches = self._reader.read(bytes_max, wait, seconds)
        rows = letters = None
        try:
            rows = write_staged(self._destination[0].shard.location, maker.updates(batches), schema=self._schema)
            if self._letters is not None:
                location, columns = self._letters[0].shard.location, arrow_schema(DEAD_LETTER_COLUMNS)
                letters = write_staged(location, maker.letters, schema=columns)
        except BaseException as error:
            if isinstance(error, TooManySchemas):
                self._records_max = max(1, self._records_max // 4)
            self.discard(Progress(bound, rows))
            raise
        self._records_max = min(2 * self._records_max, BATCH_RECORDS)
        self._unbound = (maker.malformed, events.repeated)
        position = Position(bound.topic_id, dict(self._reader.offsets), events.places, dict(self._reader.epochs))
        return Progress(position, rows, letters)

    def _maker(self, time: Time, bytes_max: int, events: DebeziumEnvelopes) -> RowMaker | KeyedUpdates:
        if self.keyed is None:
            return RowMaker(self.table, self._schema, self._decoder, time)
        return self.keyed.made(time, events if self.table.envelope == "debezium" else open_upsert, bytes_max)

    def bound(self, upper: Time) -> None:
        """A binding has what was read; the table's upper will be `upper`, unless it stands still."""
        self.malformed += self._unbound[0]
        self.repeated += self._unbound[1]
        self._unbound = (0, 0)
        if self.keyed is not None:
            self.keyed.bound(upper)

    def discard(self, progress: Progress) -> None:
        """Deletes the staged files of `progress`; their records are read again from the bound position."""
        self._unbound = (0, 0)
        self.close()
        if self.keyed is not None:
            self.keyed.discard()
        for destination, file in ((self._destination, progress.rows), (self._letters, progress.letters)):
            if destination is not None and file is not None:
                destination[1].discard([file])

    def check(self, bound: Position, topic: Topic | TableStopped, topics: Topics) -> None:
        """Checks that the topic is the bound one, and takes up its new partitions. Raises TableStopped,
        BrokersAway."""
        if isinstance(topic, TableStopped):
            raise topic
        if topic.id != bound.topic_id:
            text = f"topic {topic.name} was created anew: its id is {topic.id}, and was {bound.topic_id}"
            raise TableStopped(TOPIC_REPLACED, text)
        if self._reader is not None and (new := sorted(set(topic.partitions) - self._reader.offsets.keys())):
            self._reader.add(topics.first(topic, new))

    def recheck(self, bound: Position, why: str, topics: Topics) -> Position:
        """The position from which a table that stopped for the reason `why` goes on. A record that is gone stays gone:
        offsets that fit again may be those of other records. Raises TableStopped where it cannot go on, BrokersAway."""
        topic = self.described(topics)
        if topic.id != bound.topic_id:
            self.check(bound, topic, topics)
        if why in (TOO_MANY_ERRORS, TRUNCATED):
            raise TableStopped(why, f"topic {topic.name} cannot be read on")
        if why == OFFSET_GONE:
            raise TableStopped(OFFSET_GONE, f"the next record of topic {topic.name} was gone before it was read")
        first, ends = topics.first(topic), topics.ends(topic)
        for partition, offset in bound.offsets.items():
            if partition in first and not first[partition] <= offset <= ends[partition]:
                text = (
                    f"partition {partition} of topic {topic.name} has offsets {first[partition]} to "
                    f"{ends[partition]}; the next one of the table is {offset}"
                )
                raise TableStopped(OFFSET_GONE, text)
        return bound

    def skipped(self, bound: Position, topics: Topics) -> Position:
        """The position behind a gap (`onGap: skip`). Raises TableStopped, BrokersAway."""
        topic = self.described(topics)
        first, ends = topics.first(topic), topics.ends(topic)
        before = bound.offsets if topic.id == bound.topic_id else {}
        offsets = {p: min(max(before.get(p, first[p]), first[p]), ends[p]) for p in topic.partitions}
        self.close()
        LOG.warning("table %s: goes on behind a gap, at offsets %s", self.table.name, offsets)
        return Position(topic.id, offsets)

    def skips(self, stopped: TableStopped) -> bool:
        return self.table.on_gap == "skip" and stopped.reason in GAPS

    def lag(self) -> int | None:
        """Offsets that the table is behind; None while no client is open."""
        return None if self._reader is None else self._reader.lag()

    def close(self) -> None:
        """The next `read` opens another client, at the bound position."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def end(self) -> None:
        """Nothing else is called afterwards, except `set_destinations`."""
        self._unbound = (0, 0)
        self.close()
        if self.keyed is not None:
            self.keyed.close()
            self.keyed = None
