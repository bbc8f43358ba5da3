"""Topics as the brokers describe them: their ids, partitions and offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.connection import REQUEST_SECONDS, away
from tidemark_replica.storage.kafka.stop import NOT_AUTHORIZED, TOPIC_MISSING, BrokersAway


@dataclass(frozen=True)
class Topic:
    """A topic as it is now. `id`: another topic of the same name has another one."""

    name: str
    id: str
    partitions: tuple[int, ...]


class Topics:
    """Asks about topics. Every call ends within twice REQUEST_SECONDS."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def ask(self, names: Collection[str]) -> dict[str, Future[Any]]:
        """The futures of `answer`, by topic. Raises BrokersAway."""
        try:
            asked = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=REQUEST_SECONDS)
        except KafkaException as error:
            raise away(error, "asking for topics") from None
        return dict(asked)

    def describe(self, names: Collection[str]) -> dict[str, Topic | TableStopped]:
        """Each topic, or why it cannot be read. Raises BrokersAway."""
        return {name: answer(name, future) for name, future in self.ask(names).items()}

    def start(self, table: KafkaTable, topic: Topic) -> dict[int, int]:
        """The offsets at which the table begins. Raises BrokersAway."""
        if table.start == "latest":
            return self.ends(topic)
        if table.start == "timestamp":
            # the ends first: records that come meanwhile are after them
            ends, found = self.ends(topic), self._offsets(topic, OffsetSpec.for_timestamp(table.start_ms))
            return {p: found[p] if found[p] >= 0 else ends[p] for p in topic.partitions}
        first = self.first(topic)
        return first | {p: o for p, o in table.start_offsets if p in first} if table.start == "offsets" else first

    def first(self, topic: Topic, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """The offset of the first record that is left, by partition. Raises BrokersAway."""
        return self._offsets(topic, OffsetSpec.earliest(), partitions)

    def ends(self, topic: Topic) -> dict[int, int]:
        """The offset after the last committed record, by partition. Raises BrokersAway."""
        return self._offsets(topic, OffsetSpec.latest())

    def show(self, group: str, tables: Iterable[tuple[str, Mapping[int, int]]]) -> None:
        """Shows the next offsets of the tables that are farthest behind as those of the group, without waiting; a
        failure is of no consequence. A consumer that commits would wait at its end for brokers that are away.
        `tables`: the topics and offsets."""
        least: dict[tuple[str, int], int] = {}
        for topic, offsets in tables:
            for p, offset in offsets.items():
                least[topic, p] = min(offset, least.get((topic, p), offset))
        at = [TopicPartition(topic, p, offset) for (topic, p), offset in least.items()]
        with contextlib.suppress(KafkaException):
            if at:
                wanted = [ConsumerGroupTopicPartitions(group, at)]
                self._admin.alter_consumer_group_offsets(wanted, request_timeout=REQUEST_SECONDS)

    def _offsets(self, topic: Topic, spec: OffsetSpec, partitions: Sequence[int] | None = None) -> dict[int, int]:
        wanted = topic.partitions if partitions is None else partitions
        if not wanted:
            return {}
        try:
            asked: Mapping[TopicPartition, Future[Any]] = self._admin.list_offsets(
                {TopicPartition(topic.name, p): spec for p in wanted},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=REQUEST_SECONDS,
            )
            return {at.partition: int(future.result(2 * REQUEST_SECONDS).offset) for at, future in asked.items()}
        except KafkaException as error:
            raise away(error, f"asking for offsets of topic {topic.name}") from None
        except FutureTimeout:
            raise BrokersAway(f"asking for offsets of topic {topic.name}: no answer") from None


def answer(name: str, future: Future[Any]) -> Topic | TableStopped:
    """The topic that a future of `Topics.ask` gives, or why it cannot be read. Raises BrokersAway."""
    try:
        found = future.result(2 * REQUEST_SECONDS)
    except KafkaException as error:
        if (refused := refusal(name, error.args[0])) is not None:
            return refused
        raise away(error, f"asking for topic {name}") from None
    except FutureTimeout:
        raise BrokersAway(f"asking for topic {name}: no answer") from None
    if not found.partitions:
        raise BrokersAway(f"topic {name} has no partitions yet")
    id = found.topic_id
    if id.get_most_significant_bits() == 0 and id.get_least_significant_bits() == 0:
        raise BrokersAway(f"topic {name}: the brokers give no topic ids; Kafka 2.8 or later is needed")
    return Topic(name, str(id), tuple(sorted(partition.id for partition in found.partitions)))


def refusal(topic: str, error: KafkaError) -> TableStopped | None:
    """The reason why the topic cannot be read; None where the error says nothing of the kind."""
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return TableStopped(TOPIC_MISSING, f"there is no topic {topic}")
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return TableStopped(NOT_AUTHORIZED, f"topic {topic} may not be read: allow Read and Describe to its user")
    return None
