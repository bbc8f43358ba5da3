"""The two topics of a sink: its own, and the one of its progress."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.envelopes import UPSERT
from tidemark_replica.sinks.kafka.progress import Ends
from tidemark_replica.sinks.kafka.stop import (
    BROKERS_AWAY,
    PROGRESS_NOT_KEPT,
    TOPIC_MISSING,
    TOPIC_NOT_EMPTY,
    Failures,
    error_of,
)
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.connection import REQUEST_SECONDS
from tidemark_replica.storage.kafka.stop import BrokersAway
from tidemark_replica.storage.kafka.topics import Topic, Topics

PAUSE_SECONDS = 0.05
_NOT_ALLOWED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_NO_LEADER_YET = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Answers of brokers that have not heard of a created topic or a new leader yet."""


class SinkTopics:
    """Looks up, and creates, the topics of a sink. Each request ends within a few REQUEST_SECONDS."""

    def __init__(self, sink: KafkaSink, admin: AdminClient, failures: Failures) -> None:
        self._sink, self._admin, self._failures = sink, admin, failures

    def look_up(self) -> Topic:
        """The topic. It and the progress topic are created where that is asked for. Raises DestinationStopped."""
        sink = self._sink
        found = self.describe()
        rows, progress = found[sink.topic], found[sink.progress_topic]
        new, config, copies = [], {"cleanup.policy": "compact"}, sink.replication or -1
        if _is_missing(rows) and sink.partitions:
            new.append(NewTopic(sink.topic, sink.partitions, copies, config=config if sink.envelope == UPSERT else {}))
        if _is_missing(progress) and (new or isinstance(rows, Topic)):
            new.append(NewTopic(sink.progress_topic, 1, copies, config=config))
        if new:
            self._create(new)
            found = self._describe_created()
        for name in (sink.topic, sink.progress_topic):
            one = found[name]
            if isinstance(one, TableStopped):
                raise unusable(one)
        rows, progress = found[sink.topic], found[sink.progress_topic]
        assert isinstance(rows, Topic)
        assert isinstance(progress, Topic)
        if len(progress.partitions) != 1:
            raise DestinationStopped(
                TOPIC_NOT_EMPTY, f"topic {sink.progress_topic} has several partitions: give progressTopic one with one"
            )
        self._check_progress_is_kept()
        return rows

    def describe(self) -> dict[str, Topic | TableStopped]:
        """Both topics, or why they cannot be used. Raises DestinationStopped."""
        try:
            found = Topics(self._admin).describe({self._sink.topic, self._sink.progress_topic})
            self._failures.last = None
            return found
        except BrokersAway as away:
            self._admin.poll(0)
            if self._failures.last is not None:
                raise self._failures.refused("asking for topics", self._failures.last) from None
            raise DestinationStopped(BROKERS_AWAY, f"{away}; it is tried again") from None

    def _describe_created(self) -> dict[str, Topic | TableStopped]:
        """Brokers hear of a created topic one after the other."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                found = self.describe()
                if not any(map(_is_missing, found.values())) or time.monotonic() > deadline:
                    return found
            except DestinationStopped:  # it has no partitions yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _check_progress_is_kept(self) -> None:
        """Raises DestinationStopped where retention may remove the progress. A user who may not ask is let through."""
        name = self._sink.progress_topic
        what = f"asking for the configuration of topic {name}"
        topic = ConfigResource(ResourceType.TOPIC, name)
        try:
            asked = self._admin.describe_configs([topic], request_timeout=REQUEST_SECONDS)
            policy = asked[topic].result(2 * REQUEST_SECONDS)["cleanup.policy"].value
        except KafkaException as error:
            if error_of(error).code() in _NOT_ALLOWED | _NO_LEADER_YET:
                return
            raise self._failures.refused(what, error_of(error)) from None
        except FutureTimeout:
            raise DestinationStopped(BROKERS_AWAY, f"{what}: no answer; it is tried again") from None
        if policy != "compact":
            raise DestinationStopped(
                PROGRESS_NOT_KEPT,
                f"topic {name} has cleanup.policy {policy}, so the brokers remove the progress after a while: set it to"
                " compact",
            )

    def _create(self, new: list[NewTopic]) -> None:
        for name, asked in self._admin.create_topics(new, request_timeout=REQUEST_SECONDS).items():
            try:
                asked.result(2 * REQUEST_SECONDS)
            except KafkaException as error:
                if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._failures.refused(f"creating topic {name}", error_of(error)) from None
            except FutureTimeout:
                raise DestinationStopped(BROKERS_AWAY, f"creating topic {name}: no answer; it is tried again") from None

    def ends(self, topic: str, partitions: Iterable[int], level: IsolationLevel) -> Ends:
        """The ends of partitions. With READ_UNCOMMITTED the records of open transactions count, too: committed ones
        after them are visible only once they end."""
        low = self._offsets(topic, partitions, OffsetSpec.earliest(), level)
        high = self._offsets(topic, partitions, OffsetSpec.latest(), level)
        return {partition: (low[partition], high[partition]) for partition in low}

    def _offsets(
        self, topic: str, partitions: Iterable[int], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[int, int]:
        what, deadline = f"asking for offsets of topic {topic}", time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                asked: dict[TopicPartition, Any] = self._admin.list_offsets(
                    {TopicPartition(topic, partition): spec for partition in partitions},
                    isolation_level=level,
                    request_timeout=REQUEST_SECONDS,
                )
                return {at.partition: int(of.result(2 * REQUEST_SECONDS).offset) for at, of in asked.items()}
            except KafkaException as error:
                if error_of(error).code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                    raise self._failures.refused(what, error_of(error)) from None
                time.sleep(PAUSE_SECONDS)
            except FutureTimeout:
                raise DestinationStopped(BROKERS_AWAY, f"{what}: no answer; it is tried again") from None


def unusable(topic: TableStopped) -> DestinationStopped:
    """The reason why a topic cannot be written, with what to do."""
    advice = "create it, or give create.partitions" if topic.reason == TOPIC_MISSING else "see the guide to Kafka sinks"
    return DestinationStopped(topic.reason, f"{topic}; {advice}")


def _is_missing(topic: Topic | TableStopped) -> bool:
    return isinstance(topic, TableStopped) and topic.reason == TOPIC_MISSING
