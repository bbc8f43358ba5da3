"""SASL over TLS on a real broker: wrong credentials hold tables with a reason, right ones count without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.authorities import Authority
from tests.kafka.broker import Broker, broker
from tests.kafka.sink.sink_views import View, check_upserts, sink_of
from tests.kafka.topics import COLUMNS, SECONDS, Run, new_topic, produce, upper
from tests.storage.ingestion_samples import oks
from tests.waiting import until as wait_until
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.publication import KafkaTopic
from tidemark_replica.storage.kafka import source as kafka_source

pytestmark = pytest.mark.kafka
AUTHORITY = Authority.named("kafka")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("secured"), AUTHORITY.server("127.0.0.1")) as kafka:
        set_password(kafka, "first-password")
        yield kafka


def secret_of(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": password,
        "ssl.ca.pem": AUTHORITY.pair.certificate.decode(),
    }


def set_password(kafka: Broker, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    asked = kafka.admin().alter_user_scram_credentials([UserScramCredentialUpsertion("ann", info, password.encode())])
    asked["ann"].result(SECONDS)


def until(run: Run, holds: Callable[[], bool]) -> None:
    """Ticks until the condition holds; clients need time to connect anew."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, run.source.warning()
        run.tick()
        time.sleep(0.05)


@pytest.mark.broad
def test_a_topic_is_read_over_sasl_and_tls(secured: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong password the table is held, and the reason does not name it."""
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 6.0)
    topic, secret = new_topic(secured), secret_of("wrong-password")
    produce(secured, topic, {"id": 1})
    spec = KafkaSource((f"127.0.0.1:{secured.secure_port}",), (KafkaTable("t", topic, "json", COLUMNS),), "kafka")
    with Run(tmp_path, spec, secret=lambda _: dict(secret)) as run:
        until(run, lambda: run.source.warning().startswith("BrokersAway"))
        assert "password" not in run.source.warning()
        assert run.source.unbound_tables()
        secret.update(secret_of("first-password"))
        until(run, lambda: upper(tmp_path, "t") > 0 and len(oks(tmp_path, "t")) == 1)


@pytest.mark.slow
def test_credentials_and_authorities_count_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_SECONDS", 6.0)
    other = Authority.named("other")
    with broker(tmp_path / "broker", AUTHORITY.server("127.0.0.1")) as kafka:
        set_password(kafka, "first-password")
        topic = new_topic(kafka)
        produce(kafka, topic, {"id": 1})
        secret = secret_of("wrong-password")
        table = KafkaTable("t", topic, "json", COLUMNS)
        spec = KafkaSource((f"127.0.0.1:{kafka.secure_port}",), (table,), "kafka")

        def refused(run: Run) -> bool:
            warning = run.source.warning()
            assert "password" not in warning
            return warning.startswith("BrokersAway")

        with Run(tmp_path, spec, secret=lambda _: dict(secret)) as run:
            until(run, lambda: refused(run))
            secret["sasl.password"] = "first-password"
            until(run, lambda: upper(tmp_path, "t") > 0 and len(oks(tmp_path, "t")) == 1)
            assert run.source.warning() == ""

            set_password(kafka, "second-password")
            kafka.stop()
            kafka.start()
            produce(kafka, topic, {"id": 2})
            until(run, lambda: refused(run))
            assert len(oks(tmp_path, "t")) == 1
            secret["sasl.password"] = "second-password"
            until(run, lambda: len(oks(tmp_path, "t")) == 2)

            secret["ssl.ca.pem"] = other.pair.certificate.decode()
            until(run, lambda: refused(run))
            produce(kafka, topic, {"id": 3})
            run.tick(3)
            assert len(oks(tmp_path, "t")) == 2
            secret["ssl.ca.pem"] = AUTHORITY.pair.certificate.decode()
            until(run, lambda: len(oks(tmp_path, "t")) == 3)
            assert run.source.warning() == ""


@pytest.mark.broad
def test_a_sink_names_credentials_that_are_refused_and_brokers_that_are_away(secured: Broker, tmp_path: Path) -> None:
    secret = secret_of("wrong-password")
    view, plain = View(tmp_path), sink_of(secured)
    sink = replace(plain, brokers=(f"127.0.0.1:{secured.secure_port}",), secret="kafka")
    last = view.step(5)

    def reason(of: KafkaSink) -> str:
        with pytest.raises(DestinationStopped) as raised:
            KafkaTopic("0/view", of, lambda _: secret).publish(view.shard, Time(last), WriterTerm(1))
        assert "password" not in str(raised.value)
        return raised.value.reason

    def is_published() -> bool:
        try:
            KafkaTopic("0/view", sink, lambda _: secret).publish(view.shard, Time(last), WriterTerm(1))
        except DestinationStopped as stopped:
            if stopped.reason != "BrokersAway":
                raise
            return False
        return True

    wait_until(lambda: reason(sink) == "NotAuthenticated")  # a busy broker is away before it refuses
    assert reason(replace(plain, brokers=("127.0.0.1:9",))) == "BrokersAway"
    secret["sasl.password"] = "first-password"
    wait_until(is_published)
    assert check_upserts(secured, plain, view) == view.at[last]
