"""A transactional producer of one topic, which no other sink can write beside.

    topics are looked up or created ─► progress: of another view or a later revision? stop, and nothing is fenced
        ─► init_transactions fences every earlier producer of the topic, of whichever view
        ─► progress is read again: nobody else can change it from here on, or this producer is fenced

`progress` is what the topic says as long as the session lives: a session ends with its first failure, as the outcome of
a commit may be unknown then, and the next one reads the progress anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.envelopes import EnvelopeRecords
from tidemark_replica.sinks.kafka.progress import KafkaSinkProgress, has_records, last_progress
from tidemark_replica.sinks.kafka.sink_topics import SinkTopics, unusable
from tidemark_replica.sinks.kafka.stop import (
    FENCED,
    TIME_TOO_LARGE,
    TOPIC_NOT_EMPTY,
    TOPIC_REPLACED,
    TOPIC_TAKEN,
    WRITTEN_BY_LATER,
    Failures,
    error_of,
)
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.connection import TRANSACTION_SECONDS, KafkaClients, ReadSecret
from tidemark_replica.storage.kafka.topics import Topic

INIT_SECONDS, COMMIT_SECONDS, ABORT_SECONDS = 30.0, 60.0, 5.0
CHECK_SECONDS = 5.0
"""The time for which a session writes without a look whether the topic is still the same one."""
POLL_EVERY = 5_000
TIME_HEADER, SNAPSHOT_HEADER = "tidemark.time", "tidemark.snapshot"


class ProducerSession:
    """One life of the producer. `view`: the Dataflow's uid and the export, as progress records name it."""

    def __init__(self, sink: KafkaSink, view: str, term: int, read_secret: ReadSecret) -> None:
        """Raises DestinationStopped, Overtaken, IngestionError."""
        self._sink, self._view = sink, view
        connection = KafkaClients(KafkaSource(sink.brokers, (), sink.secret), read_secret)
        settings = connection.settings()
        self.is_open = True
        self._failures = Failures()
        self._topics = SinkTopics(sink, connection.admin({**settings, "error_cb": self._failures}), self._failures)
        # an answer at the end of a topic waits as long for more records
        self._consumer = connection.consumer({**settings, "fetch.wait.max.ms": "10"})
        try:
            topic = self._topics.look_up()
            # without a wait: an earlier producer's transaction may be open until it is fenced
            self._check_owner(topic, IsolationLevel.READ_COMMITTED, term)
            self._producer = connection.producer(settings, transactional_id(sink.topic), self._failures)
            self._init()
            self.topic_id = topic.id
            self.progress = self._check_owner(topic, IsolationLevel.READ_UNCOMMITTED, term)
            self.check_topic()
        finally:
            self._consumer.close()

    def check_topic(self) -> None:
        """Raises DestinationStopped where the topic is not the one that was written so far."""
        self._checked_at = time.monotonic()
        described = self._topics.describe()[self._sink.topic]
        if isinstance(described, TableStopped):
            raise unusable(described)
        known = self.topic_id if self.progress is None else self.progress.topic_id
        if described.id != known:
            sink = self._sink
            raise DestinationStopped(
                TOPIC_REPLACED,
                f"topic {sink.topic} was deleted and created anew: delete topic {sink.progress_topic} too, and the view"
                " is written anew",
            )

    def send(self, records: EnvelopeRecords, progress: KafkaSinkProgress, *, is_snapshot: bool = False) -> None:
        """One transaction: the records, and the progress. Raises DestinationStopped, Overtaken: then the session is
        over, and the transaction is in the topic as a whole or not at all."""
        headers: list[tuple[str, bytes]] = [(TIME_HEADER, str(progress.time).encode())]
        if is_snapshot:
            headers.append((SNAPSHOT_HEADER, b"true"))
        began = time.monotonic()
        try:
            if is_snapshot or began - self._checked_at >= CHECK_SECONDS:
                self.check_topic()
            self._producer.begin_transaction()
            self._produce(records.pairs(), headers)
            self._produce_one(self._sink.progress_topic, self._sink.topic.encode(), progress.encode(), [], 0)
            self._commit()
        except KafkaException as error:
            self._abort(error_of(error), time.monotonic() - began)
        except BaseException:
            self.close()
            raise
        self.progress, self._failures.last = progress, None

    def close(self) -> None:
        """Aborts what is open, as far as the brokers answer: consumers would wait for it."""
        self._end()

    def _end(self) -> KafkaError | None:
        """Aborts what is open. Returns why the brokers refuse that."""
        self.is_open = False
        try:
            self._producer.purge()
            self._producer.abort_transaction(ABORT_SECONDS)
        except KafkaException as error:
            return error_of(error)
        return None

    def _check_owner(self, topic: Topic, level: IsolationLevel, term: int) -> KafkaSinkProgress | None:
        """The progress. Raises DestinationStopped where another Dataflow, or a later revision, writes the topic.
        `level`: with READ_UNCOMMITTED open transactions are waited for."""
        name = self._sink.progress_topic
        progress = last_progress(self._consumer, name, self._sink.topic, self._topics.ends(name, [0], level))
        self._check_term(progress, term)
        if progress is None or not progress.has_rows:
            self._check_empty(topic, level)
        return progress

    def _check_term(self, progress: KafkaSinkProgress | None, term: int) -> None:
        if progress is None:
            return
        if progress.view != self._view:
            raise DestinationStopped(
                TOPIC_TAKEN,
                f"topic {self._sink.topic} has the rows of another view, of a Dataflow that may be deleted: give the"
                f" sink another topic, or delete this one and topic {self._sink.progress_topic}",
            )
        if progress.term > term:
            raise DestinationStopped(
                WRITTEN_BY_LATER, "a later revision of the Dataflow writes the topic; nothing is to do"
            )

    def _check_empty(self, topic: Topic, level: IsolationLevel) -> None:
        if has_records(self._consumer, topic.name, self._topics.ends(topic.name, topic.partitions, level)):
            raise DestinationStopped(
                TOPIC_NOT_EMPTY,
                f"topic {topic.name} has records, and topic {self._sink.progress_topic} does not say which view they"
                " are of: give the sink an empty topic, or delete this one",
            )

    def _init(self) -> None:
        deadline = time.monotonic() + INIT_SECONDS
        while True:
            try:
                self._producer.init_transactions(5.0)
                return
            except KafkaException as error:
                self._hear_failures()
                refused = self._failures.refused("beginning to write transactions", error_of(error))
                if not error_of(error).retriable() or time.monotonic() > deadline or self._failures.is_refused:
                    raise refused from None

    def _hear_failures(self) -> None:
        """Lets the client tell `_failures` why connections fail. A fatal error is raised by what met it, too."""
        with suppress(KafkaException):
            self._producer.poll(0)

    def _produce(self, pairs: Iterable[tuple[bytes, bytes | None]], headers: list[tuple[str, bytes]]) -> None:
        topic, produce = self._sink.topic, self._produce_one
        for number, (key, value) in enumerate(pairs):
            produce(topic, key, value, headers)
            if number % POLL_EVERY == 0:
                self._producer.poll(0)

    def _produce_one(
        self, topic: str, key: bytes, value: bytes | None, headers: list[tuple[str, bytes]], partition: int = -1
    ) -> None:
        deadline = 0.0
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=self._undelivered, headers=headers)
                return
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + COMMIT_SECONDS
                if now > deadline:
                    raise self._failures.refused("writing records", KafkaError(KafkaError._TIMED_OUT)) from None
                self._producer.poll(0.1)

    def _undelivered(self, error: KafkaError | None, _: object) -> None:
        """Note the error of a record that was not written."""
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._lost = self._lost or error

    _lost: KafkaError | None = None
    """The first failure of a record."""

    def _commit(self) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                self._producer.commit_transaction(COMMIT_SECONDS)
                return
            except KafkaException as error:
                if not error_of(error).retriable() or time.monotonic() > deadline:
                    raise

    def _abort(self, error: KafkaError, seconds: float) -> None:
        """Raises what failed. `seconds`: how long the transaction was open."""
        ended = self._end()
        self._hear_failures()
        if ended is not None and ended.code() in FENCED:  # brokers may say so of the abort alone
            error = ended
        if error.code() in FENCED and seconds > TRANSACTION_SECONDS:
            raise DestinationStopped(
                TIME_TOO_LARGE,
                f"writing topic {self._sink.topic}: one transaction took {seconds:.0f} s, and the brokers end it after"
                f" {TRANSACTION_SECONDS} s; it is tried again. Where that goes on, mend what makes the brokers slow, or"
                " give the sink another topic: the view is written anew in pieces",
            )
        raise self._failures.refused(
            f"writing topic {self._sink.topic}", error if error.code() in FENCED or self._lost is None else self._lost
        )


def committed_progress(sink: KafkaSink, read_secret: ReadSecret) -> KafkaSinkProgress | None:
    """The last committed progress of the topic, without a producer; None where there is none, or no topic. Raises
    DestinationStopped, IngestionError."""
    connection, failures = KafkaClients(KafkaSource(sink.brokers, (), sink.secret), read_secret), Failures()
    settings = connection.settings()
    topics = SinkTopics(sink, connection.admin({**settings, "error_cb": failures}), failures)
    if any(isinstance(each, TableStopped) for each in topics.describe().values()):
        return None
    consumer = connection.consumer({**settings, "fetch.wait.max.ms": "10"})
    try:
        ends = topics.ends(sink.progress_topic, [0], IsolationLevel.READ_COMMITTED)
        return last_progress(consumer, sink.progress_topic, sink.topic, ends)
    finally:
        consumer.close()


def transactional_id(topic: str) -> str:
    """The same for every sink of the topic, so that a new producer fences the one before, also another Dataflow's."""
    return f"tidemark-{topic}"
