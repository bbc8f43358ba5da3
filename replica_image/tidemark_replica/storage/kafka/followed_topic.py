"""One table and its topic: reads new records, a bounded number of bytes at a time, into staged files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from confluent_kafka import Consumer

from tidemark_persist import Shard, StagedFile, remove_staged, restaged, write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.by_key.debezium import AvroEvents, JsonEvents
from tidemark_replica.storage.kafka.by_key.event_places import EventPlaces
from tidemark_replica.storage.kafka.by_key.opened import Open, open_upserts
from tidemark_replica.storage.kafka.by_key.records import KeyedRecords, KeyedUpdates
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.reader import BATCH_BYTES, BATCH_RECORDS, TopicReader
from tidemark_replica.storage.kafka.rows import DEAD_LETTER_COLUMNS, RowMaker, columns_of
from tidemark_replica.storage.kafka.stop import (
    GAPS,
    OFFSET_GONE,
    OTHER_ORIGIN,
    SEQUENCE_MISSING,
    TOO_MANY_ERRORS,
    TOPIC_REPLACED,
    TRUNCATED,
    BrokersAway,
)
from tidemark_replica.storage.kafka.topics import Topic, Topics
from tidemark_replica.storage.kafka.transactions.avro_metadata import AvroMarks
from tidemark_replica.storage.kafka.transactions.metadata import MarksOf, json_marks
from tidemark_replica.storage.kafka.transactions.read_ahead import FateOf, FirstOf, RankOf, ReadAhead, Recall
from tidemark_replica.storage.kafka.values.decoding import decoder_of, head_decoder_of, key_decoder_of, value_columns
from tidemark_replica.storage.kafka.values.framing import FRAME_BYTES, TooManySchemas
from tidemark_replica.storage.schema_registry import RegistryAway, SchemaRegistry
from tidemark_replica.values.arrow_types import arrow_schema

LOG = logging.getLogger(__name__)
WAIT_SECONDS = 0.5
"""The time that a table waits for records that it knows of, or for the end of a partition."""
KEPT_RECORDS = 250_000
"""Records that are kept for other tables to take, about; each takes 400 bytes of memory and more."""
STALLED_SECONDS = 30.0
"""The time that a table waits for records that were there before, when it reads them again."""
Destination = tuple[IngestedTable, Shard]


@dataclass
class TopicProgress:
    """One table's part of a binding: its position, and staged files of the table and of its dead letters."""

    position: Position
    rows: StagedFile | None = None
    letters: StagedFile | None = None


class FollowedTopic:
    """A table's topic. `registry`: what knows the schemas of framed records. `open_consumer` makes a client. `prefix`:
    of the topics of a connector whose transactions are followed, empty where none are. Raises SourceUnusable."""

    def __init__(
        self,
        table: KafkaTable,
        registry: SchemaRegistry | None,
        open_consumer: Callable[[], Consumer],
        prefix: str = "",
    ) -> None:
        self.table, self._open_consumer = table, open_consumer
        self._prefix = prefix if table.envelope == "debezium" else ""
        self.ahead: ReadAhead | None = None
        """Records that were read and that `take` has not staged; None while no client is open."""
        self.recall: Recall = lambda *_: ()
        self._decoder, self._key_decoder = decoder_of(table, registry), key_decoder_of(table, registry)
        self._head_decoder = head_decoder_of(table, registry)
        self._schema = arrow_schema(columns_of(table))
        self._value_names = [column.name for column in value_columns(table)]
        self._marks_of: MarksOf = json_marks
        if self._prefix and table.format == "avro" and registry is not None:
            self._marks_of = AvroMarks(registry)
        self._reader: TopicReader | None = None
        self._destination: Destination | None = None
        self._letters: Destination | None = None
        self.keyed: KeyedRecords | None = None
        """The table's rows by key, where it has one."""
        self.malformed, self.repeated = 0, 0
        self._unbound = (0, 0)
        """Malformed records and repeated events that were read and are not bound yet."""
        self._records_max = BATCH_RECORDS
        """The records of a batch, at most: a quarter after a batch of too many schemas, and twice as many after each
        read without one."""

    @property
    def problem(self) -> str:
        """The reason why no records come; empty while they do."""
        return self._reader.problem if self._reader is not None else ""

    def set_destinations(self, table: Destination, letters: Destination | None) -> None:
        """Sets the tables that take the rows and the dead letters."""
        self._destination, self._letters = table, letters
        self.end()
        if self._key_decoder is not None:
            self.keyed = KeyedRecords(self.table, self._schema, self._key_decoder, table[1])

    def restart(self) -> None:
        """Forgets what was read; the shard has nothing of it."""
        assert self._destination is not None
        self.forget_counts()
        self.set_destinations(self._destination, self._letters)

    def forget_counts(self) -> None:
        """The records that were read are read again, and count then."""
        self.malformed, self.repeated = 0, 0

    @property
    def shard(self) -> Shard:
        """The shard of the table."""
        assert self._destination is not None
        return self._destination[1]

    def begin(self, topics: Topics, joined: int) -> Position:
        """The position at which the table begins. `joined`: where the last transaction ended that is bound. Raises
        TableStopped, BrokersAway."""
        topic = self.described(topics)
        offsets = topics.start(self.table, topic)
        return self._joining(Position(topic.id, offsets, begins=offsets, records=0), topic, topics, joined)

    def described(self, topics: Topics) -> Topic:
        """The topic as the brokers describe it now. Raises TableStopped, BrokersAway."""
        found = topics.describe([self.table.topic])[self.table.topic]
        if isinstance(found, TableStopped):
            raise found
        return found

    def read(
        self,
        bound: Position,
        time: Time,
        bytes_max: int,
        seconds: float,
        cut: Mapping[int, int] | None = None,
        kept: list[list[Any]] | None = None,
    ) -> TopicProgress:
        """Reads the records after `bound`, about `bytes_max` bytes of them, for `seconds` at most, and stages their
        rows at `time`. `cut`: reads no further, by partition. `kept`: takes the batches of records, about
        KEPT_RECORDS at most, for `take_over`. The caller checks afterwards that the topic is still the bound one.
        Raises TableStopped, BrokersAway, RegistryAway, StorageError; no file stays staged then."""
        reader = self._opened(bound)
        reader.records_max = self._records_max
        wait, count = 0.0 if reader.problem else min(WAIT_SECONDS, seconds), 0

        def read() -> Iterator[list[Any]]:
            nonlocal count
            for records in _before(reader, reader.read(bytes_max, wait, seconds), cut):
                count += len(records)
                if kept is not None:
                    kept.append(records)
                yield records
                if kept is not None and count >= KEPT_RECORDS:
                    return

        try:
            rows, letters, places = self._staged(read(), bound, time, bytes_max)
        except TooManySchemas:
            self.read_less_at_once()
            raise
        self._records_max = min(2 * self._records_max, BATCH_RECORDS)
        offsets, epochs = dict(reader.offsets), dict(reader.epochs)
        if beyond := [p for p in offsets if cut is not None and offsets[p] > cut[p]]:
            offsets |= {p: cut[p] for p in beyond if cut is not None}
            epochs = {p: epoch for p, epoch in epochs.items() if p not in beyond}
            self.close()  # the next read begins at the cut
        position = self._moved(bound, offsets, reader.begins, count, event_places=places, epochs=epochs)
        return TopicProgress(position, rows, letters)

    def take_over(
        self, bound: Position, records: list[list[Any]], behind: Position, time: Time, size: int
    ) -> TopicProgress:
        """Stages the rows of records that another table of the topic has read, from the offsets of `bound` to those of
        `behind`. Raises as `read`."""
        self.close()
        rows, letters, places = self._staged(iter(records), bound, time, size)
        count = sum(map(len, records))
        epochs = behind.epochs
        position = self._moved(bound, behind.offsets, behind.begins, count, event_places=places, epochs=epochs)
        return TopicProgress(position, rows, letters)

    def _moved(
        self, bound: Position, offsets: Mapping[int, int], first: Mapping[int, int], count: int, **others: Any
    ) -> Position:
        """The position behind so many further records, as `Position.moved`. Where rows are by key, and partitions were
        added, a key may have records in two of them: read again, another one would be the last, so the records do not
        count as known."""
        position = bound.moved(offsets, first, count, **others)
        if self.table.envelope != "none" and offsets.keys() - bound.offsets.keys():
            return replace(position, records=None)
        return position

    def read_less_at_once(self) -> None:
        """The last batch had records of too many schemas."""
        self._records_max = max(1, self._records_max // 4)

    def read_ahead(
        self, bound: Position, memory: int, runs: int, bytes_max: int, seconds: float, watermark: int, more: bool
    ) -> None:
        """Reads records that `take` gives, about `bytes_max` bytes of them; at most `memory` bytes and `runs` are kept.
        `more`: the others wait for this table, so it reads on when memory is full. Raises TableStopped,
        BrokersAway, RegistryAway."""
        reader = self._opened(bound)
        reader.records_max = self._records_max
        if self.ahead is None:
            frame = FRAME_BYTES if self.table.key_framed else 0
            self.ahead = ReadAhead(self.table.topic, self._prefix, memory, runs, self.recall, self._marks_of, frame)
        ahead = self.ahead
        if ahead.is_full and not more:
            return
        reader.pause(ahead.crowded(len(reader.offsets)))
        wait = 0.0 if reader.problem else min(WAIT_SECONDS, seconds)
        try:
            for records in reader.read(bytes_max, wait, seconds):
                ahead.add(records, watermark)
                reader.pause(ahead.crowded(len(reader.offsets)))
                if ahead.is_full and not more:
                    return
        except RegistryAway as error:
            if isinstance(error, TooManySchemas):
                self.read_less_at_once()
            self.close()  # the records are read again
            raise
        self._records_max = min(2 * self._records_max, BATCH_RECORDS)

    def take(
        self, bound: Position, time: Time, cut: Mapping[int, int], fate_of: FateOf, rank_of: RankOf, first_of: FirstOf
    ) -> TopicProgress:
        """Stages the rows of the records before the cut. Raises TableStopped, BrokersAway, StorageError; no file stays
        staged then."""
        assert self._reader is not None
        assert self.ahead is not None
        reader, ahead, size, begins = self._reader, self.ahead, self.ahead.bytes, dict(self._reader.begins)
        taken, counts = ahead.take(cut, fate_of, rank_of, first_of)
        last: dict[int, Any] = {}
        count = 0

        def counted() -> Iterator[list[Any]]:
            nonlocal count
            for records in self._read_again(bound, cut) if ahead.is_over else iter([taken]):
                count += len(records)
                last.update((record.partition(), record) for record in records)
                if found := [record for record in records if counts(record)]:
                    yield found

        rows, letters, places = self._staged(counted(), bound, time, size)
        epochs = {}
        for partition, offset in cut.items():
            epoch = reader.epochs.get(partition) if offset == reader.offsets[partition] else None
            if offset == bound.offsets.get(partition):
                epoch = bound.epochs.get(partition)
            elif partition in last and last[partition].offset() + 1 == offset:
                epoch = last[partition].leader_epoch()
            if epoch is not None:
                epochs[partition] = epoch
        if ahead.is_over:
            self.close()
        history = {p: end for p, end in bound.history.items() if cut.get(p, 0) < end}
        position = self._moved(bound, cut, begins, count, event_places=places, epochs=epochs, history=history)
        return TopicProgress(position, rows, letters)

    def _read_again(self, bound: Position, cut: Mapping[int, int]) -> Iterator[list[Any]]:
        """Yield the records from the bound position to the cut, which are more than memory holds. Raises
        BrokersAway."""
        assert self._reader is not None
        begins = {p: bound.offsets.get(p, begin) for p, begin in self._reader.begins.items()}
        reader = TopicReader(self._open_consumer(), self.table.topic, begins, bound.epochs)
        deadline = monotonic() + STALLED_SECONDS
        try:
            while any(reader.offsets[p] < offset for p, offset in cut.items()):
                reader.pause({p for p, offset in cut.items() if reader.offsets[p] >= offset})
                for records in reader.read(BATCH_BYTES, WAIT_SECONDS, STALLED_SECONDS):
                    deadline = monotonic() + STALLED_SECONDS
                    yield [record for record in records if record.offset() < cut[record.partition()]]
                if monotonic() > deadline:
                    raise BrokersAway(reader.problem or f"topic {self.table.topic}: no record comes")
        finally:
            reader.close()

    def _opened(self, bound: Position) -> TopicReader:
        if self._reader is None:
            self._reader = TopicReader(self._open_consumer(), self.table.topic, bound.offsets, bound.epochs)
        return self._reader

    def _staged(
        self, batches: Iterable[list[Any]], bound: Position, time: Time, size: int
    ) -> tuple[StagedFile | None, StagedFile | None, dict[int, str]]:
        """The staged files of the table and of its dead letters, and the places of its last events."""
        assert self._destination is not None
        places = EventPlaces(bound.event_places)
        maker: RowMaker | KeyedUpdates = RowMaker(self.table, self._schema, self._decoder, time)
        if self.keyed is not None:
            maker = self.keyed.made(time, self._opener(places), size)
        rows = letters = None
        try:
            rows = write_staged(self._destination[0].shard.location, maker.updates(batches), schema=self._schema)
            if self._letters is not None:
                location, columns = self._letters[0].shard.location, arrow_schema(DEAD_LETTER_COLUMNS)
                letters = write_staged(location, maker.letters, schema=columns)
        except BaseException:
            self.discard(TopicProgress(bound, rows))
            raise
        self._unbound = (maker.malformed, places.repeated)
        return rows, letters, places.texts

    def _opener(self, places: EventPlaces) -> Open:
        """Opens the envelopes of records; `places` move."""
        if self.table.envelope != "debezium":
            return open_upserts(self._decoder)
        if self._head_decoder is not None:
            return AvroEvents(self._decoder, self._head_decoder, self._value_names, places)
        return JsonEvents(self._decoder, places)

    def bound(self, upper: Time) -> None:
        """A binding has what was read; the table's upper will be `upper`, unless it stands still."""
        self.malformed += self._unbound[0]
        self.repeated += self._unbound[1]
        self._unbound = (0, 0)
        if self.keyed is not None:
            self.keyed.bound(upper)

    def discard(self, progress: TopicProgress) -> None:
        """Deletes the staged files of `progress`; their records are read again from the bound position."""
        self._unbound = (0, 0)
        self.close()
        if self.keyed is not None:
            self.keyed.discard()
        self.remove(progress)

    def remove(self, progress: TopicProgress) -> None:
        """Deletes the staged files of `progress`."""
        for destination, file in ((self._destination, progress.rows), (self._letters, progress.letters)):
            if destination is not None and file is not None:
                destination[1].discard([file])

    def renewed(self, progress: TopicProgress, age_seconds: float) -> TopicProgress:
        """`progress`, with copies of the staged files that are older than this. Raises StorageError."""
        files = []
        for destination, file in ((self._destination, progress.rows), (self._letters, progress.letters)):
            if destination is not None and file is not None:
                location, old = destination[0].shard.location, file
                file = restaged(location, old, age_seconds=age_seconds)
                if file is not old:
                    remove_staged(location, [old])
            files.append(file)
        return TopicProgress(progress.position, *files)

    def check(self, bound: Position, topic: Topic | TableStopped, topics: Topics) -> None:
        """Checks that the topic is the bound one, and takes up its new partitions. Raises TableStopped,
        BrokersAway."""
        topic = checked(bound, topic)
        if self._reader is not None and (new := sorted(set(topic.partitions) - self._reader.offsets.keys())):
            self._reader.add(topics.first(topic, new))

    def rejoin(self, bound: Position, topics: Topics, joined: int) -> Position:
        """The position from which a table goes on that was not there while transactions were bound. Raises
        TableStopped, BrokersAway."""
        return self._joining(bound, self.described(topics), topics, joined)

    def recheck(self, bound: Position, why: str, topics: Topics, joined: int) -> Position:
        """The position from which a table that stopped for the reason `why` goes on. A record that is gone stays gone:
        offsets that fit again may be those of other records. Raises TableStopped where it cannot go on, BrokersAway."""
        topic = self.described(topics)
        if topic.id != bound.topic_id:
            self.check(bound, topic, topics)
        if why in (TOO_MANY_ERRORS, TRUNCATED, OTHER_ORIGIN, SEQUENCE_MISSING):
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
        return self._joining(bound, topic, topics, joined)

    def skipped(self, bound: Position, topics: Topics, joined: int) -> Position:
        """The position behind a gap (`onGap: skip`). Raises TableStopped, BrokersAway."""
        topic = self.described(topics)
        first, ends = topics.first(topic), topics.ends(topic)
        before = bound.offsets if topic.id == bound.topic_id else {}
        offsets = {p: min(max(before.get(p, first[p]), first[p]), ends[p]) for p in topic.partitions}
        self.close()
        LOG.warning("table %s: goes on behind a gap, at offsets %s", self.table.name, offsets)
        return self._joining(Position(topic.id, offsets), topic, topics, joined)

    def _joining(self, position: Position, topic: Topic, topics: Topics, joined: int) -> Position:
        """The position, from which a table that follows transactions takes those whole that end after `joined`."""
        return replace(position, history=topics.ends(topic), joined=joined) if self._prefix else position

    def skips(self, stopped: TableStopped) -> bool:
        return self.table.on_gap == "skip" and stopped.reason in GAPS

    @property
    def follows_transactions(self) -> bool:
        return bool(self._prefix)

    @property
    def offsets(self) -> Mapping[int, int]:
        """The next records to be read, by partition; none while no client is open."""
        return self._reader.offsets if self._reader is not None else {}

    def lag(self, bound: Position | None) -> int | None:
        """Offsets that the table is behind; None while no client is open, or it does not know the ends of all
        partitions. `bound`: the table's position, None without one."""
        if self._reader is None:
            return None
        if bound is None or not self._prefix:
            return self._reader.lag(self._reader.offsets)
        return self._reader.lag({p: bound.offsets.get(p, begin) for p, begin in self._reader.begins.items()})

    def close(self) -> None:
        """The next `read` opens another client, at the bound position."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self.ahead = None

    def end(self) -> None:
        """Nothing else is called afterwards, except `set_destinations`."""
        self._unbound = (0, 0)
        self.close()
        if self.keyed is not None:
            self.keyed.close()
            self.keyed = None


def checked(bound: Position, topic: Topic | TableStopped) -> Topic:
    """The topic, which is the bound one. Raises TableStopped."""
    if isinstance(topic, TableStopped):
        raise topic
    if topic.id != bound.topic_id:
        text = f"topic {topic.name} was created anew: its id is {topic.id}, and was {bound.topic_id}"
        raise TableStopped(TOPIC_REPLACED, text)
    return topic


def _before(reader: TopicReader, batches: Iterable[list[Any]], cut: Mapping[int, int] | None) -> Iterator[list[Any]]:
    """The records before the cut, if there is one. Partitions that are there are not read on."""
    if cut is None:
        yield from batches
        return
    reader.pause({p for p, offset in cut.items() if reader.offsets[p] >= offset})
    for records in batches:
        if before := [record for record in records if record.offset() < cut[record.partition()]]:
            yield before
        reader.pause({p for p, offset in cut.items() if reader.offsets[p] >= offset})
        if all(reader.offsets[p] >= offset for p, offset in cut.items()):
            return
