"""A Kafka sink of Avro with a real broker and a registry over HTTP: what a consumer decodes by the ids in the frames is
the view at each time, and a registry that refuses or is away leaves no part of a time."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.avro.samples import read
from tests.kafka.broker import Broker
from tests.kafka.sink.sink_views import View, check_upserts, progress, publish, sink_of, topic_of, transactions
from tests.kafka.topics import Run, spec_of
from tests.schema_registry.registry import Registry, registry
from tests.storage.ingestion_samples import oks
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaTable
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.types import BIGINT, INT, STRING, Column
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.topic_destination import TopicDestination
from tidemark_replica.storage import schema_registry
from tidemark_replica.storage.kafka.inspect import tables_of
from tidemark_replica.storage.source_secrets import SourceSecrets

pytestmark = [pytest.mark.kafka, pytest.mark.broad]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(schema_registry, "PAUSE_SECONDS", 0.0)
    with registry() as one:
        yield one


def avro(kafka: Broker, server: Registry, **options: Any) -> KafkaSink:
    return sink_of(kafka, format="avro", registry=server.url, **options)


def reader(server: Registry) -> Callable[[bytes], dict[str, Any]]:
    """Decodes as a consumer does: by fastavro, with the schema that the frame names."""

    def decode(framed: bytes) -> dict[str, Any]:
        magic, id = struct.unpack(">bI", framed[:5])
        assert magic == 0
        found: dict[str, Any] = read(framed[5:], json.loads(server.schemas[id]["schema"]))
        return found

    return decode


def stopped(view: View, to: Any, time: int) -> DestinationStopped:
    with pytest.raises(DestinationStopped) as raised:
        publish(view, to, time)
    return raised.value


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_oracle_the_fold_of_the_topic_is_the_view_and_the_source_reads_it(
    kafka: Broker, server: Registry, tmp_path: Path, seed: int
) -> None:
    view, sink = View(tmp_path, seed, keys=60), avro(kafka, server)
    last = view.step(60)
    publish(view, topic_of(sink, 20), last)
    one, other = topic_of(sink), topic_of(sink)
    for _ in range(4):
        last = view.step(view.random.randrange(8), view.random.randrange(1, 4))
        publish(view, view.random.choice([one, other]), last)
        assert check_upserts(kafka, sink, view, reader(server)) == view.at[last]
    assert {f"{sink.topic}-key", f"{sink.topic}-value"} == server.subjects.keys()
    assert [len(ids) for ids in server.subjects.values()] == [1, 1]
    assert progress(kafka, sink)[-1]["key_schema"] == server.subjects[f"{sink.topic}-key"][0]

    field = {"name": "key", "aliases": ["k"], "type": ["null", "long"], "default": None}
    key = {"type": "record", "name": "Key", "fields": [field]}
    table = KafkaTable(
        "t",
        sink.topic,
        "avro",
        (),
        envelope="upsert",
        key_format="avro",
        key_schema=KafkaSchema(json.dumps(key)),
        key_framed=True,
        schema=KafkaSchema(subject=f"{sink.topic}-value"),
        framed=True,
    )
    spec = spec_of(kafka, table, registry=server.url)
    (found,) = [each.schema for each in tables_of(spec, lambda _: {}) if each.name == "t"]
    assert isinstance(found, str)
    pinned = replace(spec, tables=(replace(table, schema=KafkaSchema(found)),))
    with Run(tmp_path, pinned) as run:
        run.catch_up()
        found_rows = oks(tmp_path, "t")
    assert all(row[0] == row[1] for row in found_rows)  # the key, and the value's column k
    rows = [row[1:] for row in found_rows]
    assert sorted(rows, key=repr) == sorted((tuple(row.values()) for row in view.at[last].values()), key=repr)


def test_events_of_debezium(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    view, sink = View(tmp_path), avro(kafka, server, envelope="debezium")
    publish(view, sink, view.append((1, "a", 1, 0, 1), (2, "b", 2, 0, 1)))
    publish(view, sink, view.append((1, "a", 1, 1, -1), (1, "c", 3, 1, 1), (2, "b", 2, 1, -1), (3, None, None, 1, 1)))
    decode = reader(server)
    found = {
        time: {
            (decode(r.key())["k"], r.value() is None): None if r.value() is None else decode(r.value()) for r in records
        }
        for time, records in transactions(kafka, sink).items()
    }
    old, new = {"k": 1, "name": "a", "n": 1}, {"k": 1, "name": "c", "n": 3}
    two, three = {"k": 2, "name": "b", "n": 2}, {"k": 3, "name": None, "n": None}
    assert found == {
        0: {
            (1, False): {"before": None, "after": old, "op": "r", "ts_ms": 0},
            (2, False): {"before": None, "after": two, "op": "r", "ts_ms": 0},
        },
        1: {
            (1, False): {"before": old, "after": new, "op": "u", "ts_ms": 1},
            (2, False): {"before": two, "after": None, "op": "d", "ts_ms": 1},
            (2, True): None,
            (3, False): {"before": None, "after": three, "op": "c", "ts_ms": 1},
        },
    }


def test_a_registry_that_is_away_leaves_no_part_of_a_time(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    view, sink, decode = View(tmp_path), avro(kafka, server), reader(server)
    one, last = topic_of(sink, 5), view.step(20)
    for server.status in (503, 301, 429):
        refused = stopped(view, one, last)
        assert refused.reason == "RegistryAway"
        assert f"status {server.status}" in str(refused)
        assert not progress(kafka, sink)
        assert not transactions(kafka, sink)
    server.status = 0
    publish(view, one, last)
    server.status = 503
    publish(view, one, view.step(5))
    other = topic_of(sink)
    last = view.step(5)
    assert stopped(view, other, last).reason == "RegistryAway"
    publish(view, one, last)  # it knows the ids, also in a new session
    assert check_upserts(kafka, sink, view, decode) == view.at[last]
    server.status = 0
    publish(view, other, view.step(5))
    assert check_upserts(kafka, sink, view, decode) == view.at[view.upper - 1]


def test_a_schema_that_the_registry_refuses_stops_by_name(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    """The sink goes on once the subject's compatibility takes the schema: then it is a new version."""
    view, sink, decode = View(tmp_path), avro(kafka, server), reader(server)
    subject = f"{sink.topic}-value"
    server.register(subject, {"type": "record", "name": "Value", "fields": [{"name": "k", "type": "string"}]})
    last = view.step(5)
    refused = stopped(view, sink, last)
    assert refused.reason == "SchemaRefused"
    assert subject in str(refused)
    assert "incompatible with an earlier schema" in str(refused)
    assert not progress(kafka, sink)
    server.compatibility = "NONE"
    publish(view, sink, last)
    assert check_upserts(kafka, sink, view, decode) == view.at[last]
    assert len(server.subjects[subject]) == 2


def test_other_columns_are_a_new_version_of_the_subject(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    """The SQL was edited, and the topics were deleted: a column that comes is compatible."""
    sink = avro(kafka, server)
    subject = f"{sink.topic}-value"
    field = {"name": "k", "type": ["null", "long"], "default": None}
    least = {"type": "record", "name": "Value", "fields": [field]}
    server.register(subject, least)
    view = View(tmp_path)
    publish(view, sink, view.step(5))
    assert len(server.subjects[subject]) == 2
    other, asked = View(tmp_path / "other", shard_id="u2"), len(server.requests)
    assert stopped(other, sink, other.step(5)).reason == "ViewReplaced"
    assert len(server.requests) == asked  # no version is registered for a topic that is not written


def test_keys_keep_their_bytes(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    """A registry that lost its schemas gives others: then a tombstone would not delete its row."""
    view, sink = View(tmp_path), avro(kafka, server)
    publish(view, sink, view.step(5))
    before = progress(kafka, sink)
    kept = dict(server.subjects), dict(server.schemas)
    server.subjects.clear()
    last = view.step(5)
    assert stopped(view, sink, last).reason == "SchemaReplaced"
    assert stopped(view, replace(sink, format="json", registry=""), last).reason == "SinkChanged"
    assert progress(kafka, sink) == before
    server.subjects, server.schemas = kept
    publish(view, sink, last)
    assert check_upserts(kafka, sink, view, reader(server)) == view.at[last]


def test_credentials_are_in_no_text(kafka: Broker, server: Registry, tmp_path: Path) -> None:
    view, sink = View(tmp_path), avro(kafka, server, registry_secret="registry")
    folder = tmp_path / "secrets" / "registry"
    folder.mkdir(parents=True)
    (folder / "username").write_text("user")
    (folder / "password").write_text("wrong-password")
    server.password = "right-password"
    columns = (Column("k", BIGINT), Column("name", STRING), Column("n", INT))
    shard = ShardMetadata(ShardId("u1"), view.location, columns)
    secrets = SourceSecrets(tmp_path / "secrets")
    one, last = TopicDestination(GlobalId("u/v/1"), shard, sink, ShardHandles(), secrets), Time(view.step(5))

    def problem() -> DestinationStopped:
        with pytest.raises(DestinationStopped) as raised:
            one.publish(last, WriterTerm(1))
        assert "-password" not in str(raised.value)
        return raised.value

    assert problem().reason == "RegistryAway"
    (folder / "password").write_text("right-password")
    server.take = lambda *_: (422, {"message": "I was given right-password"})  # type: ignore[method-assign]
    assert "<password of Secret registry>" in str(problem())
    del server.take
    assert one.publish(last, WriterTerm(1)).time == last
    one.interrupt()
    one.close()


@pytest.mark.parametrize("answer", [{}, {"id": "1"}, {"id": True}, {"id": 2**31}, {"id": -1}, [], "x"])
def test_an_answer_without_an_id_is_none(server: Registry, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(server, "take", lambda *_: (200, answer))
    with pytest.raises(schema_registry.RegistryAway, match="status 200"):
        schema_registry.SchemaRegistry(server.url, None).register("s", '"int"')
