"""The progress of a topic: a record of the progress topic, in the same transaction as the rows.

    progress topic, one partition, compacted      orders ─► {"time": 12000, "term": 3, "shard": ..., "view": ...}

The record cannot be a header of the rows: a time without rows has none, and rows may be compacted or expire. The last
committed record of the topic's name counts. It is read up to the end that the partition had after `init_transactions`,
which has ended the transaction of an earlier producer; an open transaction of another sink on the same progress topic
is waited for, since committed records after its first one are not visible before it ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.stop import BROKERS_AWAY, TOPIC_NOT_EMPTY, Failures, error_of

WINDOW_RECORDS = 500
"""Records at the end of the progress topic that are read first; then ten times as many, and so on."""
READ_SECONDS = 30.0


class KafkaSinkProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A progress record. `view`: the Dataflow's uid and the export. `shard`: the id of the view's table.
    `topic_id`: another topic of the same name has another one. `key`, `envelope`, `format`: of the records.
    `key_schema`: the id that the registry gives the schema of their keys; 0 without one. `pieces`, `done`: of a
    snapshot, how many transactions it takes and how many there have been; the topic has the contents at `time` once
    they are equal."""

    view: str
    shard: str
    time: int
    term: int
    topic_id: str
    key: tuple[str, ...]
    envelope: str
    pieces: int = 0
    done: int = 0
    format: str = "json"
    key_schema: int = 0

    @property
    def has_rows(self) -> bool:
        """Whether the topic may have rows of the view; a snapshot claims the topic before its first piece."""
        return not self.pieces or self.done > 0

    @property
    def is_complete(self) -> bool:
        return self.done >= self.pieces

    def encode(self) -> bytes:
        """The value of the record."""
        return msgspec.json.encode(self)


def decode(value: bytes) -> KafkaSinkProgress:
    """Raises DestinationStopped where the record is not of a sink."""
    try:
        return msgspec.json.decode(value, type=KafkaSinkProgress)
    except msgspec.MsgspecError:
        raise DestinationStopped(
            TOPIC_NOT_EMPTY,
            "the progress topic has records of something else: give the sink a progressTopic of its own",
        ) from None


Ends = Mapping[int, tuple[int, int]]
"""The offset, by partition, of the first record, and the one after the last, committed or not."""


def last_progress(consumer: Consumer, progress_topic: str, topic: str, ends: Ends) -> KafkaSinkProgress | None:
    """The last committed progress record about the topic; None: there is none. `ends`: of the progress topic.
    Raises DestinationStopped."""
    deadline, window = time.monotonic() + READ_SECONDS, WINDOW_RECORDS
    low, high = ends[0]
    try:
        while True:
            begin = max(low, high - window)
            found = _last_record(consumer, progress_topic, topic, begin, high, deadline)
            if found is not None or begin == low:
                return None if found is None else decode(found)
            window *= 10
    except KafkaException as error:
        raise Failures().refused(f"reading topic {progress_topic}", error_of(error)) from None


def _last_record(
    consumer: Consumer, progress_topic: str, topic: str, begin: int, end: int, deadline: float
) -> bytes | None:
    """The value of the last record with the key, in committed records from `begin` to `end`."""
    found: bytes | None = None
    at, key = begin, topic.encode()
    consumer.assign([TopicPartition(progress_topic, 0, begin)])
    while at < end:
        message = consumer.poll(max(0.0, min(1.0, deadline - time.monotonic())))
        if message is None and time.monotonic() > deadline:
            raise DestinationStopped(
                BROKERS_AWAY,
                f"topic {progress_topic} cannot be read up to its end: brokers are away, or another producer's"
                " transaction on it is still open; it is tried again",
            )
        if message is None or message.topic() not in (progress_topic, None):
            continue
        if message.error() is None:
            at = message.offset() + 1
            found = message.value() if message.key() == key else found
        elif message.error().code() == KafkaError._PARTITION_EOF:
            at = max(at, message.offset())
        elif not message.error().retriable():
            raise KafkaException(message.error())
    return found


def has_records(consumer: Consumer, topic: str, ends: Ends) -> bool:
    """Whether the topic has a committed record. Raises DestinationStopped."""
    deadline = time.monotonic() + READ_SECONDS
    left = {partition: high for partition, (low, high) in ends.items() if low < high}
    consumer.assign([TopicPartition(topic, partition, ends[partition][0]) for partition in left])
    while left:
        message = consumer.poll(max(0.0, min(1.0, deadline - time.monotonic())))
        if message is None:
            if time.monotonic() > deadline:
                raise DestinationStopped(BROKERS_AWAY, f"topic {topic} cannot be read up to its end; it is tried again")
        elif message.topic() not in (topic, None):
            continue
        elif message.error() is None:
            return True
        elif message.error().code() == KafkaError._PARTITION_EOF:
            if message.offset() >= left.get(message.partition(), 0):
                left.pop(message.partition(), None)
        elif not message.error().retriable():
            raise Failures().refused(f"reading topic {topic}", message.error())
    return False
