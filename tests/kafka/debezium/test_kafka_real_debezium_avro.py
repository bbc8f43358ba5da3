"""Values as Debezium's connector for PostgreSQL writes them in Avro, by Apicurio's converter: the table has those of
the database. Its schemas are those that the converter registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.postgres import Postgres
from tests.kafka.broker import Broker
from tests.kafka.connect import Worker, connect
from tests.kafka.debezium.debezium_shop import ADVISED, connector, server_on_tcp, topic_of
from tests.kafka.debezium.test_kafka_debezium_avro import avro, pinned
from tests.kafka.debezium.test_kafka_real_debezium_values import SHORT, SHOWN_AS, TOLD, TYPES, Mirror
from tests.kafka.topics import Run, new_topic, spec_of
from tests.postgres.databases import Database, create_database
from tests.replica.process import wait_until
from tests.schema_registry.registry import Registry, registry
from tidemark_protocol.plan.kafka import KafkaSchema

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.broad]
CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
ALL = {name: of for name, of in (SHORT | TOLD).items() if name not in ("ld", "it", "tt")}
"""The schema says the types of columns: none is taken as another one."""
PRECISE = {name: of for name, of in ALL.items() if name != "nn"}
"""Debezium's default for NUMERIC without a precision is a record."""
AS_TEXTS = {name: ADVISED[name] for name in ("decimal.handling.mode", "time.precision.mode")}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with server_on_tcp() as running:
        yield running


@pytest.fixture(scope="module")
def worker(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with connect(kafka, tmp_path_factory.mktemp("connect")) as running:
        yield running


class AvroMirror(Mirror):
    """A Mirror by Avro. `settings`: of the connector, instead of those that the guide advises for JSON."""

    def __init__(
        self,
        kafka: Broker,
        server: Postgres,
        worker: Worker,
        root: Path,
        name: str,
        of: Any,
        schemas: Registry,
        **settings: str,
    ) -> None:
        self._root, self.name, self._of = root, name, of
        create_database(server, name, TYPES + self._ddl())
        self.database, topic = Database(server, name), new_topic(kafka, 1, topic_of(name, prefix=name))
        config = connector(server, name, schemas=True, topic_prefix=name, provide_transaction_metadata="false")
        config = {key: value for key, value in config.items() if not key.endswith("schemas.enable")} | settings
        for side in ("key.converter", "value.converter"):
            config |= {side: CONVERTER, f"{side}.apicurio.registry.url": f"{schemas.url}/apis/registry/v2"}
            config |= {f"{side}.apicurio.registry.{n}": "true" for n in ("as-confluent", "auto-register")}
            config |= {f"{side}.apicurio.registry.headers.enabled": "false"}
        worker.configure(name, config)
        self.insert(0)

        def registered() -> bool:
            assert not (failed := worker.failures(name)), failed
            return f"{topic}-value" in schemas.subjects

        wait_until(registered, bound=120.0)
        subjects = {"schema": KafkaSchema(subject=f"{topic}-value"), "key_schema": KafkaSchema(subject=f"{topic}-key")}
        self.table = avro(topic, name, **subjects)
        self.run = Run(root, pinned(spec_of(kafka, self.table, registry=schemas.url)))


class AdaptiveMirror(AvroMirror):
    """A TIME is microseconds."""

    shown: Mapping[str, str] = {**SHOWN_AS, "tm": "(extract(epoch from {0}) * 1000000)::bigint"}


def test_values_by_the_connectors_defaults(kafka: Broker, server: Postgres, worker: Worker, tmp_path: Path) -> None:
    """Numbers of days and microseconds, and decimals in bytes."""
    with registry() as schemas:
        defaults = {"decimal.handling.mode": "precise", "time.precision.mode": "adaptive"}
        follow(AdaptiveMirror(kafka, server, worker, tmp_path, "adaptive", PRECISE, schemas, **defaults))


def test_values_as_texts(kafka: Broker, server: Postgres, worker: Worker, tmp_path: Path) -> None:
    """With the settings that the guide advises for JSON. A number in a text is a STRING."""
    texts = {name: of for name, of in ALL.items() if name not in ("n", "mo")}
    with registry() as schemas:
        follow(AvroMirror(kafka, server, worker, tmp_path, "texts", texts, schemas, **AS_TEXTS))


def follow(every: AvroMirror) -> None:
    """A snapshot, changes, and an update that keeps what PostgreSQL does not send. No column comes upstream: this
    version of the converter fails then, until the task begins anew."""
    with every.run:
        every.check()
        every.insert(2)
        every.database.run(f"insert into {every.name} (id) values (3)")
        every.check()
        every.database.run(f"update {every.name} set s = s + 1")
        every.database.run(f"update {every.name} set id = 4 where id = 3", f"delete from {every.name} where id = 0")
        every.check()
