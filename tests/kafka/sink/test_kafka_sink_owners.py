"""One topic has one sink: second ones, topics that change under a sink, and brokers that refuse what it asks for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.kafka.broker import Broker
from tests.kafka.sink.sink_views import (
    SCHEMA,
    UID,
    View,
    check_upserts,
    progress,
    publish,
    sink_of,
    topic_of,
    transactions,
)
from tests.kafka.topics import SECONDS, delete_topic, new_topic
from tests.waiting import until
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import BIGINT, INT, STRING, Column
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import DestinationFailed, DestinationStopped
from tidemark_replica.sinks.kafka import session
from tidemark_replica.sinks.kafka.publication import PIECE_ROWS
from tidemark_replica.sinks.kafka.session import ProducerSession
from tidemark_replica.sinks.kafka.stop import Failures, Overtaken
from tidemark_replica.sinks.kafka.topic_destination import TopicDestination
from tidemark_replica.storage.kafka import connection
from tidemark_replica.storage.kafka.stop import BrokersAway
from tidemark_replica.storage.kafka.topics import Topic, Topics
from tidemark_replica.storage.source_secrets import SourceSecrets

pytestmark = [pytest.mark.kafka, pytest.mark.broad]
OTHER = "1111"


def stopped(view: View, to: Any, time: int, term: int = 1) -> DestinationStopped:
    with pytest.raises(DestinationStopped) as raised:
        publish(view, to, time, term)
    return raised.value


def described(kafka: Broker, name: str) -> Topic | None:
    """The topic as the broker shows it; None while it has none, or one without leaders."""
    try:
        found = Topics(kafka.admin()).describe({name})[name]
    except BrokersAway:
        return None
    return found if isinstance(found, Topic) else None


def before_send(monkeypatch: pytest.MonkeyPatch, number: int, action: Any) -> None:
    """Calls `action` before the transaction with this number."""
    send, left = ProducerSession.send, [number]

    def acting(*arguments: Any, **named: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            action()
        send(*arguments, **named)

    monkeypatch.setattr(ProducerSession, "send", acting)


@pytest.mark.parametrize("piece_rows", [10, PIECE_ROWS])
def test_of_two_dataflows_that_begin_at_once_one_writes(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    """The second one finds no progress, and writes the view before the first one's first transaction."""
    view, sink = View(tmp_path, keys=60), sink_of(kafka)
    last = view.step(40)
    first, second = topic_of(sink, piece_rows), topic_of(sink, piece_rows, OTHER)
    before_send(monkeypatch, 1, lambda: publish(view, second, last))
    with pytest.raises(Overtaken):
        publish(view, first, last)
    last = view.step(20)
    assert stopped(view, first, last).reason == "TopicTaken"
    publish(view, second, last)
    assert {each["view"] for each in progress(kafka, sink)} == {f"{OTHER}/view"}
    assert check_upserts(kafka, sink, view) == view.at[last]


def test_a_snapshot_claims_its_topic_before_it_looks_at_all_keys(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Dataflow is refused meanwhile; with another progress topic it takes the empty topic over."""
    view, sink = View(tmp_path, keys=60), sink_of(kafka)
    last = view.step(40)
    first, second = topic_of(sink, 10), topic_of(sink, 10, OTHER)
    before_send(monkeypatch, 2, lambda: stopped(view, second, last))
    publish(view, first, last)
    found = [(each["view"], each["pieces"], each.get("done", 0)) for each in progress(kafka, sink)]
    assert found == [(f"{UID}/view", found[0][1], done) for done in range(found[0][1] + 1)]
    assert check_upserts(kafka, sink, view) == view.at[last]
    monkeypatch.undo()
    taken = sink_of(kafka)
    elsewhere = replace(taken, progress_topic=f"{taken.topic}-elsewhere")
    before_send(monkeypatch, 2, lambda: publish(view, topic_of(elsewhere, 10, OTHER), last))
    with pytest.raises(Overtaken):
        publish(view, topic_of(taken, 10), last)
    assert stopped(view, topic_of(taken, 10), last).reason == "TopicNotEmpty"
    assert check_upserts(kafka, elsewhere, view) == view.at[last]


def test_a_producer_that_another_fenced_is_overtaken_whatever_the_brokers_say_of_its_commit(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They refuse to abort its transaction, as it is fenced: the sink looks again, and has nothing to write."""
    view, sink = View(tmp_path), sink_of(kafka)
    one = topic_of(sink)
    publish(view, one, view.step(5))
    last = view.step(5)

    def unknown(_: ProducerSession) -> None:
        monkeypatch.undo()
        publish(view, topic_of(sink), last)
        raise KafkaException(KafkaError(KafkaError.UNKNOWN))

    monkeypatch.setattr(ProducerSession, "_commit", unknown)
    publish(view, one, last)
    assert len(progress(kafka, sink)) == 2
    assert check_upserts(kafka, sink, view) == view.at[last]


def test_a_claim_without_rows_binds_no_time(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    assert stopped(view, topic_of(sink, 1), view.append((1, "a", 1, 0, 1), (1, "b", 2, 0, 1))).reason == "KeyNotUnique"
    assert stopped(view, topic_of(sink, 1), 0).reason == "KeyNotUnique"
    assert [(each["pieces"], each.get("done", 0)) for each in progress(kafka, sink)] == [(2, 0)]
    last = view.append((1, "b", 2, 1, -1), (2, "c", 3, 1, 1))
    publish(view, topic_of(sink, 1), last)
    assert {time: len(records) for time, records in transactions(kafka, sink).items()} == {last: 2}


def test_an_owner_is_not_fenced_by_sinks_that_are_refused(kafka: Broker, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    one = topic_of(sink)
    publish(view, one, view.step(9), term=2)
    begun = one._session
    elsewhere = replace(sink, progress_topic=f"{sink.topic}-elsewhere")
    last = view.step(9)
    for other, term, reason in [
        (topic_of(sink, uid=OTHER), 3, "TopicTaken"),
        (topic_of(sink), 1, "WrittenByLater"),
        (topic_of(elsewhere, uid=OTHER), 3, "TopicNotEmpty"),
    ]:
        assert stopped(view, other, last, term).reason == reason
    publish(view, one, last, term=2)
    assert one._session is begun
    assert check_upserts(kafka, sink, view) == view.at[last]


@pytest.mark.parametrize("in_snapshot", [True, False])
def test_a_topic_that_is_replaced_meanwhile_gets_nothing_more(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_snapshot: bool
) -> None:
    """Within a snapshot each piece looks, later a time does so every few seconds."""
    view, sink = View(tmp_path, keys=60), sink_of(kafka)
    last, one = view.step(40), topic_of(sink, 10)
    if not in_snapshot:
        publish(view, one, last)
        last = view.step(9, 3)
        monkeypatch.setattr(session, "CHECK_SECONDS", 0.0)

    def replace_topic() -> None:
        before = described(kafka, sink.topic)
        delete_topic(kafka, sink.topic)
        new_topic(kafka, 2, sink.topic)
        # the broker may show the earlier topic for a moment, and write records to the new one
        until(lambda: described(kafka, sink.topic) not in (None, before))

    before_send(monkeypatch, 3, replace_topic)
    assert stopped(view, one, last).reason in ("TopicReplaced", "TopicMissing")  # as the broker has heard of it
    assert transactions(kafka, sink) == {}


def test_a_transaction_that_takes_too_long_says_so(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, sink = View(tmp_path), sink_of(kafka)
    publish(view, sink, view.step(5))
    last = view.step(5)
    real = ProducerSession._produce
    for module in (connection, session):
        monkeypatch.setattr(module, "TRANSACTION_SECONDS", 11)

    def slow(writes: ProducerSession, *arguments: Any) -> None:
        real(writes, *arguments)
        writes._producer.flush(SECONDS)
        time.sleep(14)  # brokers look twice a second for transactions that last too long

    monkeypatch.setattr(ProducerSession, "_produce", slow)
    found = stopped(view, sink, last)
    assert (found.reason, "after 11 s" in str(found)) == ("TimeTooLarge", True)
    monkeypatch.undo()
    publish(view, sink, last)
    assert check_upserts(kafka, sink, view) == view.at[last]


def test_what_brokers_refuse_is_named_with_its_advice(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(tmp_path)
    last = view.step(5)
    found = stopped(view, sink_of(kafka, replication=3), last)
    assert (found.reason, "create.replication" in str(found)) == ("TopicNotCreated", True)
    sink = sink_of(kafka)
    new_topic(kafka, 1, sink.progress_topic, cleanup_policy="delete")
    found = stopped(view, sink, last)
    assert (found.reason, sink.progress_topic in str(found)) == ("ProgressNotKept", True)
    monkeypatch.setattr(connection, "TRANSACTION_SECONDS", 1_000)
    found = stopped(view, sink_of(kafka), last)
    assert (found.reason, "transaction.max.timeout.ms" in str(found)) == ("TransactionsUnavailable", True)


def test_a_failure_of_a_connection_explains_missing_answers_alone() -> None:
    failures = Failures()
    failures(KafkaError(KafkaError._AUTHENTICATION))
    cases = [
        (KafkaError._TIMED_OUT, "NotAuthenticated", "_AUTHENTICATION"),
        (KafkaError.POLICY_VIOLATION, "TopicNotCreated", "POLICY_VIOLATION"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "BrokersAway", "min.insync.replicas"),
        (KafkaError.UNKNOWN, "BrokersAway", "UNKNOWN"),
    ]
    for code, reason, text in cases:
        found = failures.refused("asking", KafkaError(code))
        assert isinstance(found, DestinationStopped)
        assert (found.reason, text in str(found)) == (reason, True)


def test_a_destination_that_is_closed_ends_its_session_between_transactions(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, sink = View(tmp_path, keys=60), sink_of(kafka)
    last = view.step(40)
    columns = tuple(Column(name, type) for name, type in zip(SCHEMA.names, (BIGINT, STRING, INT), strict=True))
    shard = ShardMetadata(ShardId("u1"), view.location, columns)

    def destination() -> TopicDestination:
        return TopicDestination(GlobalId(f"{UID}/view/1"), shard, sink, ShardHandles(), SourceSecrets(None))

    one = destination()
    monkeypatch.setattr(one._topic, "piece_rows", 10)
    before_send(monkeypatch, 3, one.interrupt)
    with pytest.raises(DestinationFailed):
        one.publish(Time(last), WriterTerm(1))
    assert one._topic._session is None
    assert [each.get("done", 0) for each in progress(kafka, sink)] == [0, 1, 2]
    other = destination()
    assert other.publish(Time(last), WriterTerm(1)).time == last
    begun = other._topic._session
    assert begun is not None
    other.close()
    assert (begun.is_open, other._topic._session) == (False, None)
    assert check_upserts(kafka, sink, view) == view.at[last]
