"""Gaps: a record that is gone, a topic that is another one, brokers that are away. Each has its name."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition, TopicPartitionInfo, Uuid
from confluent_kafka.admin import TopicDescription

from tests.kafka.broker import Broker, broker
from tests.kafka.topics import (
    COLUMNS,
    Run,
    consumed,
    delete_records,
    delete_topic,
    ends,
    new_topic,
    produce,
    producer,
    spec_of,
    upper,
)
from tests.ports import free_port
from tests.storage.ingestion_samples import oks
from tests.waiting import BOUND, until
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_replica.storage.errors import IngestionError, SourceUnusable, TableStopped
from tidemark_replica.storage.kafka import gaps
from tidemark_replica.storage.kafka.connection import KafkaClients
from tidemark_replica.storage.kafka.stop import NOT_AUTHORIZED, BrokersAway
from tidemark_replica.storage.kafka.topics import answer

pytestmark = [pytest.mark.kafka, pytest.mark.broad]


def ids(root: Path, table: str = "t") -> list[Any]:
    return [row[0] for row in oks(root, table)]


def table(topic: str, on_gap: str = "stop", name: str = "t") -> KafkaTable:
    return KafkaTable(name, topic, "json", COLUMNS[:1], on_gap=on_gap)


def test_an_offset_that_is_gone_stops_the_table_and_no_other(kafka: Broker, tmp_path: Path) -> None:
    topic, other = new_topic(kafka), new_topic(kafka)
    produce(kafka, topic, {"id": 1})
    spec = spec_of(kafka, table(topic), table(other, name="o"))
    with Run(tmp_path, spec) as run:
        run.catch_up()
    produce(kafka, topic, *({"id": i} for i in range(2, 6)))
    delete_records(kafka, topic, 0, 4)
    with Run(tmp_path, spec) as run:
        run.until(run.source.stop_reasons)
        text = run.source.stop_reasons()["t"]
        assert text.startswith("OffsetGone: table t: partition 0 of topic")
        stands = upper(tmp_path, "t")
        produce(kafka, other, {"id": 7})
        run.until(lambda: ids(tmp_path, "o") == [7])
    with Run(tmp_path, spec, term=2) as run:  # another process knows before it asks
        assert run.source.stop_reasons()["t"] == text
        run.tick(2)
        assert run.source.stop_reasons()["t"].startswith("OffsetGone: ")
    assert upper(tmp_path, "t") == stands
    assert ids(tmp_path) == [1]


def test_a_gap_stays_where_the_topic_grows_past_it(kafka: Broker, tmp_path: Path) -> None:
    """Offsets that fit again may be those of other records: nothing between may be left out silently. Also where the
    user could not read the topic meanwhile."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 0})
    spec = spec_of(kafka, KafkaTable("t", topic, "json", COLUMNS[:1], start="offsets", start_offsets=((0, 3),)))
    with Run(tmp_path, spec) as run:
        run.until(run.source.stop_reasons)
        text = run.source.stop_reasons()["t"]
        assert text.startswith("OffsetGone: table t: partition 0 of topic")
    produce(kafka, topic, *({"id": i} for i in range(1, 6)))
    for term in (2, 3):
        with Run(tmp_path, spec, term=term) as run:
            run.tick(3)
            assert run.source.stop_reasons() == {"t": text}
    with Run(tmp_path, spec, term=4) as run:
        run.source._stop("t", TableStopped(NOT_AUTHORIZED, "no"), None)
        assert run.source._changes == {("t", "stopped"): text}
    assert ids(tmp_path) == []


def test_brokers_without_topic_ids_are_refused() -> None:
    """A topic that is created anew could not be noticed."""
    future: Future[TopicDescription] = Future()
    future.set_result(TopicDescription("t", Uuid(0, 0), False, [TopicPartitionInfo(0, None, [], [])]))
    with pytest.raises(BrokersAway, match=r"topic t: the brokers give no topic ids; Kafka 2\.8 or later is needed"):
        answer("t", future)


def test_a_gap_is_passed_over_where_the_spec_allows_it(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1})
    with Run(tmp_path, spec_of(kafka, table(topic, "skip"))) as run:
        run.catch_up()
    produce(kafka, topic, *({"id": i} for i in range(2, 6)))
    delete_records(kafka, topic, 0, 4)
    with Run(tmp_path, spec_of(kafka, table(topic, "skip"))) as run:
        run.catch_up()
        assert not run.source.stop_reasons()
    with Run(tmp_path, spec_of(kafka, table(topic, "skip"))) as run:  # another process knows
        run.tick()
        assert run.source.counters()["gaps/t"] == 1
        assert run.source.warning().startswith("GapSkipped: table t: gaps passed over: 1; the last one: partition 0 of")
        run.source._time += gaps.SHOWN_MS
        assert not run.source.warning()
    assert ids(tmp_path) == [1, 5]


def test_the_group_shows_the_least_offsets(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1}, {"id": 2})
    late = KafkaTable("l", topic, "json", COLUMNS[:1], start="latest")
    with Run(tmp_path, spec_of(kafka, table(topic), late, group=f"{topic}-g")) as run:
        run.catch_up()
        asked = [ConsumerGroupTopicPartitions(f"{topic}-g", [TopicPartition(topic, 0)])]

        def shown() -> int:
            (future,) = kafka.admin().list_consumer_group_offsets(asked).values()
            return int(future.result(BOUND).topic_partitions[0].offset)

        run.source._bound["l"] = replace(run.source._bound["l"], offsets={0: 1})
        run.source._show_at = 0.0
        run.source._look()
        until(lambda: shown() == 1)


def test_a_log_that_was_cut_off_and_written_again_is_a_gap(tmp_path: Path) -> None:
    """An unclean election leaves such a log: the offsets that were read are those of other records now."""
    with broker(tmp_path / "kafka") as own:
        topic = new_topic(own)
        for id in range(10):
            produce(own, topic, {"id": id})
        spec = spec_of(own, table(topic), table(topic, "skip", "s"), group="g")
        with Run(tmp_path, spec) as run:
            run.catch_up()
            own.stop(grace=0)
            run.source._show_at = 0.0
            run.tick()
            begun = time.monotonic()
        assert time.monotonic() - begun < 40  # a consumer that had committed would wait for 45 s
        cut_off(own.folder / "data", topic, batches=5)
        own.start()
        for id in range(20, 30):
            produce(own, topic, {"id": id})
        with Run(tmp_path, spec) as run:
            run.until(lambda: run.source.stop_reasons() and run.source.counters()["gaps/s"])
            run.catch_up()
            assert run.source.stop_reasons()["t"].startswith("OffsetGone: table t: partition 0 of topic")
    assert sorted(ids(tmp_path)) == [*range(10)]
    assert sorted(ids(tmp_path, "s")) == [*range(10), *range(25, 30)]


def test_markers_of_another_leader_are_no_gap(tmp_path: Path) -> None:
    """The last record that was read is of an older epoch than the marker behind it, where the table goes on."""
    with broker(tmp_path / "kafka") as own:
        topic = new_topic(own)
        spec = spec_of(own, table(topic))
        produce(own, topic, {"id": 1})
        with Run(tmp_path, spec) as run:
            run.catch_up()
        own.stop()
        own.start()
        writer = producer(own, **{"transactional.id": "a"})
        writer.init_transactions()
        writer.begin_transaction()
        writer.produce(topic, b'{"id": 2}', partition=0)
        writer.flush()
        writer.abort_transaction()
        with Run(tmp_path, spec) as run:
            run.catch_up()
        produce(own, topic, {"id": 3})
        with Run(tmp_path, spec) as run:
            run.until(lambda: len(ids(tmp_path)) == 2 or run.source.stop_reasons())
            assert not run.source.stop_reasons()
    assert sorted(ids(tmp_path)) == [1, 3]


def cut_off(data: Path, topic: str, batches: int) -> None:
    """Leaves the first batches of the log of a broker that was killed."""
    folder, at = data / f"{topic}-0", 0
    (log,) = folder.glob("*.log")
    content = log.read_bytes()
    for _ in range(batches):
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    assert 0 < at < len(content)
    log.write_bytes(content[:at])
    for path in [*folder.glob("*index"), *folder.glob("*.snapshot"), data / "recovery-point-offset-checkpoint"]:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("on_gap", ["stop", "skip"])
def test_a_topic_that_was_created_anew_is_another_one(kafka: Broker, tmp_path: Path, on_gap: str) -> None:
    """Also where it has as many records as the table has read, so that the offsets fit."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1}, {"id": 2})
    spec = spec_of(kafka, table(topic, on_gap))
    with Run(tmp_path, spec) as run:
        run.catch_up()
    delete_topic(kafka, topic)
    new_topic(kafka, name=topic)
    produce(kafka, topic, {"id": 3}, {"id": 4}, {"id": 5})
    with Run(tmp_path, spec) as run:
        if on_gap == "stop":
            run.until(run.source.stop_reasons)
            assert run.source.stop_reasons()["t"].startswith("TopicReplaced: table t: topic")
        else:
            run.until(lambda: run.source.counters()["gaps/t"] > 0)
            run.catch_up()
            run.tick(3)
            assert run.source.counters()["gaps/t"] == 1
    assert ids(tmp_path) == ([1, 2] if on_gap == "stop" else [1, 2, 3, 4, 5])


@pytest.mark.parametrize("gap", ["records", "topic"])
def test_a_table_that_stopped_at_a_gap_goes_on_with_onGap_edited(kafka: Broker, tmp_path: Path, gap: str) -> None:
    """It stays stopped until then, also in other processes; edited back, it stops at the next gap."""
    topic = new_topic(kafka)
    produce(kafka, topic, *({"id": n} for n in range(3)))
    with Run(tmp_path, spec_of(kafka, table(topic))) as run:
        run.catch_up()
    if gap == "records":
        produce(kafka, topic, {"id": 3}, {"id": 4})
        delete_records(kafka, topic, 0, 4)
    else:
        delete_topic(kafka, topic)
        new_topic(kafka, name=topic)
        produce(kafka, topic, {"id": 4})
    for _ in range(2):
        with Run(tmp_path, spec_of(kafka, table(topic))) as run:
            run.until(run.source.stop_reasons)
    with Run(tmp_path, spec_of(kafka, table(topic, "skip"))) as run:
        run.until(lambda: not run.source.stop_reasons())
        run.catch_up()
        assert run.source.warning().startswith("GapSkipped: table t: gaps passed over: 1; the last one: ")
    assert ids(tmp_path) == [0, 1, 2, 4]
    produce(kafka, topic, {"id": 5}, {"id": 6})
    delete_records(kafka, topic, 0, ends(kafka.address, topic)[0] - 1)
    with Run(tmp_path, spec_of(kafka, table(topic))) as run:
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons()["t"].startswith("OffsetGone: table t: ")
    assert ids(tmp_path) == [0, 1, 2, 4]


def test_a_topic_that_is_missing_is_waited_for(kafka: Broker, tmp_path: Path) -> None:
    topic = f"{new_topic(kafka)}-later"
    spec = spec_of(kafka, table(topic))
    with Run(tmp_path, spec) as run:
        run.until(run.source.stop_reasons)
        assert run.source.stop_reasons()["t"] == f"TopicMissing: table t: there is no topic {topic}"
    new_topic(kafka, name=topic)
    produce(kafka, topic, {"id": 1})
    with Run(tmp_path, spec) as run:
        run.until(lambda: not run.source.stop_reasons())
        run.catch_up()
    assert ids(tmp_path) == [1]


def test_offsets_that_compaction_left_out_are_no_gap(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(
        kafka, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0"
    )
    for i in range(20):
        produce(kafka, topic, {"id": i}, key=b"k")
    deadline = time.monotonic() + BOUND
    while len(left := consumed(kafka, topic, 1)) > 10 and time.monotonic() < deadline:
        produce(kafka, topic, {"id": 99}, key=b"k")  # a segment that is written to is not compacted
        time.sleep(0.2)
    assert left[-1].offset() + 1 > len(left)
    with Run(tmp_path, spec_of(kafka, table(topic))) as run:
        run.catch_up()
        assert not run.source.stop_reasons()
    assert json.loads(left[-1].value())["id"] in ids(tmp_path)


def test_brokers_that_do_not_answer_are_a_warning(tmp_path: Path) -> None:
    spec = KafkaSource((f"127.0.0.1:{free_port()}",), (table("t"),))
    with Run(tmp_path, spec) as run:
        begun = time.monotonic()
        run.tick(2)
        assert time.monotonic() - begun < 60
        assert run.source.warning().startswith("BrokersAway: ")
        assert list(run.source.unbound_tables()) == ["t"]


@pytest.mark.slow
def test_crash_brokers_that_are_away_hold_up_nothing(tmp_path: Path) -> None:
    """A broker that is killed and started again: a warning meanwhile, each row once in the end."""
    with broker(tmp_path / "kafka") as own:
        topic = new_topic(own)
        produce(own, topic, {"id": 1})
        with Run(tmp_path, spec_of(own, table(topic))) as run:
            run.catch_up()
            own.stop(grace=0)
            run.until(run.source.warning, seconds=BOUND)
            assert run.source.warning().startswith("BrokersAway: ")
            before = upper(tmp_path, "t")
            run.tick(3)
            assert upper(tmp_path, "t") > before
            assert not run.source.stop_reasons()
            own.start()
            produce(own, topic, {"id": 2})
            run.until(lambda: ids(tmp_path) == [1, 2], seconds=BOUND)
            run.until(lambda: not run.source.warning(), seconds=BOUND)


def test_settings_that_could_run_code_are_refused(kafka: Broker) -> None:
    for key in ("plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.key.location"):
        spec = spec_of(kafka, table("t"), secret="s")
        with pytest.raises(IngestionError, match=f"Secret s: keys {key} are not taken"):
            KafkaClients(spec, lambda name, key=key: {key: "x"}).settings()  # type: ignore[misc]


def test_a_setting_that_the_client_refuses_is_named_without_its_value(kafka: Broker) -> None:
    for secret, named in (
        ({"security.protocol": "SASL"}, "security.protocol"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "xxx"}, "ssl.ca.pem"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.password, sasl.username"),
    ):
        connection = KafkaClients(spec_of(kafka, table("t"), secret="s"), lambda name, secret=secret: secret)  # type: ignore[misc]
        settings = connection.settings()
        for client in (connection.consumer, connection.admin):
            with pytest.raises(SourceUnusable) as raised:
                client(settings)
            text = f"Secret s: the Kafka client refuses {named} (_INVALID_ARG); correct them"
            assert str(raised.value) == text


def test_sasl_needs_a_mechanism_that_the_client_has(kafka: Broker) -> None:
    for secret, found in (({}, "missing"), ({"sasl.mechanism": "GSSAPI"}, "'GSSAPI'")):
        entries = {"security.protocol": "SASL_SSL", **secret}
        connection = KafkaClients(spec_of(kafka, table("t"), secret="s"), lambda name, entries=entries: entries)  # type: ignore[misc]
        with pytest.raises(SourceUnusable, match=f"Secret s: sasl.mechanism is {found}; known are PLAIN, SCRAM"):
            connection.settings()


def test_a_secret_that_cannot_be_used_fails_the_ingestion(kafka: Broker, tmp_path: Path) -> None:
    """Its message names the Secret; a Secret that comes later is read by the next attempt, one that changes soon."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1})
    spec = spec_of(kafka, table(topic), secret="s")
    entries: dict[str, str] = {}

    def read(name: str) -> dict[str, str]:
        if not entries:
            raise IngestionError(f"Secret {name} does not exist")
        return dict(entries)

    with Run(tmp_path, spec, secret=read) as run, pytest.raises(IngestionError, match="Secret s does not exist"):
        run.tick()
    entries["security.protocol"] = "PLAINTEXT"
    with Run(tmp_path, spec, secret=read) as run:
        run.catch_up()
        entries["ssl.endpoint.identification.algorithm"] = "none"
        run.source._look_at = 0.0
        run.tick()
        assert run.source._settings["ssl.endpoint.identification.algorithm"] == "none"
        produce(kafka, topic, {"id": 2})
        run.until(lambda: ids(tmp_path) == [1, 2])
