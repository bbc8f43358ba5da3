"""Records of one topic, in batches of bounded size, from given offsets on.

    librdkafka's thread ──QUEUE_KILOBYTES ahead at most──► queue ──read──► batches of records, ends of partitions

Only committed records are read; the client drops those of transactions that aborted. Within a partition records come
in the order of their offsets. Where offsets are missing (compaction, markers of transactions) nothing is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from operator import methodcaller
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.connection import error_name
from tidemark_replica.storage.kafka.stop import OFFSET_GONE, BrokersAway
from tidemark_replica.storage.kafka.topics import refusal

BATCH_BYTES = 4 << 20
BATCH_RECORDS = 10_000
POLL_SECONDS = 0.05
_ERROR, _KEY, _PARTITION = map(methodcaller, ("error", "key", "partition"))
"""For each record there are calls of C alone: a million of them come each second."""


class TopicReader:
    """Reads one topic. `offsets`: the next record of each partition, moved by `read`. `epochs`: the leader's epoch of
    each partition's last record; the brokers are asked whether that record is still in the log. `records_max`: of a
    batch; the caller may change it between reads."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        offsets: Mapping[int, int],
        epochs: Mapping[int, int] | None = None,
    ) -> None:
        self._consumer, self._topic, self.records_max = consumer, topic, BATCH_RECORDS
        self.offsets, self.epochs = dict(offsets), dict(epochs or {})
        self.begins = dict(offsets)
        """The first record that is read of each partition."""
        self.problem = ""
        """The reason why no records come; empty while they do."""
        self._ended: set[int] = set()
        self._paused: set[int] = set()
        self._average = BATCH_BYTES // 64  # bytes of a record; high before the first is known
        at = {p: {"leader_epoch": epoch} for p, epoch in self.epochs.items()}
        self._consumer.assign([TopicPartition(topic, p, o, **at.get(p, {})) for p, o in self.offsets.items()])

    def add(self, offsets: Mapping[int, int]) -> None:
        """Reads these partitions, too."""
        self.offsets |= offsets
        self.begins |= offsets
        self._consumer.incremental_assign([TopicPartition(self._topic, p, o) for p, o in offsets.items()])

    def read(self, bytes_max: int, wait_s: float, seconds: float) -> Iterator[list[Any]]:
        """Batches of records until all partitions are at their ends, about `bytes_max` bytes are read, `seconds` have
        passed, or nothing came for `wait_s` seconds. Raises TableStopped, BrokersAway."""
        taken, deadline, end = 0, monotonic() + wait_s, monotonic() + seconds
        while taken < bytes_max and monotonic() < end:
            records = self._poll(bytes_max - taken, 0.0)
            if not records:
                if self._ended >= self.offsets.keys() or monotonic() >= deadline:
                    return
                records = self._poll(bytes_max - taken, POLL_SECONDS)
            if records:
                size = sum(map(len, records)) + sum(map(len, filter(None, map(_KEY, records))))
                self._average = max(1, size // len(records))
                taken += size
                deadline = monotonic() + wait_s
                yield records

    def pause(self, partitions: set[int]) -> None:
        """Reads on in all partitions but these."""
        if stays := partitions - self._paused:
            self._consumer.pause([TopicPartition(self._topic, p) for p in stays])
        if goes := self._paused - partitions:
            self._consumer.resume([TopicPartition(self._topic, p) for p in goes])
        self._paused = set(partitions)

    def lag(self, offsets: Mapping[int, int]) -> int | None:
        """The number of offsets that the ends are ahead of these, by what the client knows without asking; None while
        it does not know the end of one of the partitions, as before the first answer of its broker."""
        total = 0
        for partition, offset in offsets.items():
            try:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
            except KafkaException:
                return None
            if high < 0:
                return None
            total += max(0, high - offset)
        return total

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, KafkaException):
            self._consumer.close()

    def _poll(self, bytes_max: int, timeout: float) -> list[Any]:
        """The records that are there, at most a batch of them, of about `bytes_max` bytes."""
        count = max(1, min(self.records_max, min(BATCH_BYTES, bytes_max) // self._average))
        messages: list[Any] = self._consumer.consume(count, timeout)
        records = list[Any]()
        begin = 0
        for i in [i for i, error in enumerate(map(_ERROR, messages)) if error is not None]:
            records += self._passed(messages[begin:i])
            self._handle_event(messages[i])
            begin = i + 1
        records += self._passed(messages[begin:])
        if records or self._ended >= self.offsets.keys():
            self.problem = ""
        return records

    def _passed(self, records: list[Any]) -> list[Any]:
        """The records, which are all behind now: the last one of each partition tells how far."""
        for partition, record in dict(zip(map(_PARTITION, records), records, strict=True)).items():
            self.offsets[partition] = record.offset() + 1
            if (epoch := record.leader_epoch()) is not None:
                self.epochs[partition] = epoch
            self._ended.discard(partition)
        return records

    def _handle_event(self, message: Any) -> None:
        """Handle a message that is no record: the end of a partition, or an error. Raises TableStopped, BrokersAway."""
        error, partition = message.error(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            if self.offsets[partition] != message.offset():
                # behind markers of transactions, or records that aborted: the epoch of the last one is not known, and
                # an older one would make a log look as if it had been cut off
                self.epochs.pop(partition, None)
            self.offsets[partition] = message.offset()
            self._ended.add(partition)
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            where = f"partition {partition} of topic {self._topic}"
            why = f"has no offset {self.offsets.get(partition or 0)} (any more), or its log was cut off before it"
            raise TableStopped(OFFSET_GONE, f"{where} {why}")
        if (refused := refusal(self._topic, error)) is not None:
            raise refused
        self.problem = f"topic {self._topic}: {error_name(error)}"
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL):
            raise BrokersAway(f"{self.problem}: the brokers refuse the credentials or the certificate")
        if error.fatal():
            raise BrokersAway(self.problem)
