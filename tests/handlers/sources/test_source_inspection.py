"""Schemas that are in ConfigMaps: the operator reads them when tables are determined, and their texts are pinned."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.handlers.sources.test_table_edits import KEY, UID, Edited, StoredObjects
from tests.resources.manifests import body
from tidemark_operator.handlers.finalizers import FINALIZER
from tidemark_operator.handlers.reconcile.source_inspection import LENGTH_MAX, inspected
from tidemark_operator.kube.client import CONFIG_MAPS, ApiError, Body, Resource
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, SourceSpec, SourceTable
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.types import BIGINT, Column

IN_MAP = KafkaSchema(config_map="schemas", key="order.avsc")
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


class ConfigMaps:
    """The ConfigMaps of namespace ns. `asked` counts reads; `failure`: raised by each."""

    def __init__(self, **texts: dict[str, str]) -> None:
        self.texts, self.asked = texts, 0
        self.failure: ApiError | None = None

    async def get(self, resource: Resource, namespace: str, name: str) -> Body | None:
        assert (resource, namespace) == (CONFIG_MAPS, "ns")
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return {"data": self.texts[name]} if name in self.texts else None


class Replica:
    """`sources`: those that it was asked to inspect."""

    def __init__(self) -> None:
        self.sources: list[SourceSpec] = []

    async def inspect(self, source: SourceSpec, pinned: Any = None) -> compute_pb2.InspectSourceResponse:
        self.sources.append(source)
        return compute_pb2.InspectSourceResponse()


def topics(*schemas: KafkaSchema | None, **table: Any) -> KafkaSource:
    one = KafkaTable("t", "t", "avro", ())
    return KafkaSource(("k:9",), tuple(replace(one, schema=schema, **table) for schema in schemas))


def ask(maps: ConfigMaps, source: SourceSpec) -> tuple[str, list[SourceSpec]]:
    """The error, and the sources that the replica was asked for."""
    replica = Replica()
    answer = asyncio.run(inspected(cast(Any, maps), "ns", cast(Any, replica), source))
    return answer.error, replica.sources


def test_a_replica_is_given_the_texts() -> None:
    """A replica gets the texts of values and of keys; each ConfigMap is read once."""
    maps = ConfigMaps(schemas={"order.avsc": SCHEMA, "key.avsc": '"long"'})
    key, given = replace(IN_MAP, key="key.avsc"), KafkaSchema(SCHEMA)
    error, (asked,) = ask(maps, topics(IN_MAP, given, key_schema=key))
    assert (error, maps.asked) == ("", 1)
    assert asked == topics(replace(IN_MAP, text=SCHEMA), given, key_schema=replace(key, text='"long"'))


@pytest.mark.parametrize(
    "source",
    [
        topics(KafkaSchema(SCHEMA), KafkaSchema(secret="s", key="k"), None),
        topics(replace(IN_MAP, text=SCHEMA)),
        FilesSource((FilesTable("t", "csv", "/in"),)),
    ],
)
def test_nothing_else_is_read(source: SourceSpec) -> None:
    maps = ConfigMaps()
    assert ask(maps, source) == ("", [source])
    assert maps.asked == 0


@pytest.mark.parametrize(
    ("maps", "why"),
    [
        (ConfigMaps(), "ConfigMap schemas does not exist in namespace ns"),
        (ConfigMaps(schemas={"other": SCHEMA}), "ConfigMap schemas has no text under order.avsc"),
        (ConfigMaps(schemas={"order.avsc": ""}), "ConfigMap schemas has no text under order.avsc"),
        (ConfigMaps(schemas={"order.avsc": " " * (LENGTH_MAX + 1)}), "is longer than 524288 characters"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_source(maps: ConfigMaps, why: str) -> None:
    """And no replica is asked."""
    error, asked = ask(maps, topics(IN_MAP))
    assert why in error
    assert not asked


def test_rights_that_are_missing_are_an_error_of_the_source() -> None:
    """Another failure of the API server passes, so it is raised."""
    maps = ConfigMaps()
    maps.failure = ApiError(403, "no")
    assert "the operator may not read ConfigMap schemas" in ask(maps, topics(IN_MAP))[0]
    maps.failure = ApiError(500, "busy")
    with pytest.raises(ApiError):
        ask(maps, topics(IN_MAP))


def test_the_text_is_pinned(tmp_path: Path) -> None:
    """A missing ConfigMap is waited for. Once its text is pinned, an edit changes nothing, nor is it read again."""
    asyncio.run(until_pinned(tmp_path))


async def until_pinned(folder: Path) -> None:
    maps, edited = ConfigMaps(), Edited(folder, StoredObjects())
    edited.harness.context.kube = cast(Any, maps)
    cast(Any, edited.running).inspect = inspect
    edited.harness.context.registry.allowed_hosts = AllowedHosts.parse(["k:9"])
    edited.harness.cache.put(KEY, manifest())
    await edited.reconciler.reconcile(KEY, manifest())
    state = edited.harness.context.registry.source(KEY)
    assert state is not None
    assert state.pinned is None
    assert state.failure is not None
    assert "ConfigMap schemas does not exist" in str(state.failure)
    maps.texts["schemas"] = {"order.avsc": SCHEMA}
    edited.reconciler._pinning.inspections.forget(KEY)  # without the pause after a failure
    await edited.reconciler.reconcile(KEY, manifest())
    assert pinned(edited) == replace(IN_MAP, text=SCHEMA)
    reads = maps.asked
    maps.texts["schemas"] = {"order.avsc": SCHEMA.replace("id", "other")}
    await edited.reconciler.reconcile(KEY, manifest())
    assert (pinned(edited), maps.asked, edited.numbers) == (replace(IN_MAP, text=SCHEMA), reads, [1])


async def inspect(source: KafkaSource, _: object = None) -> compute_pb2.InspectSourceResponse:
    schema = source.tables[0].schema
    assert schema is not None
    found = SourceTable("t", (Column("id", BIGINT),), schema=schema.text)
    return compute_pb2.InspectSourceResponse(tables=[codec.encode(found)])


def pinned(edited: Edited) -> KafkaSchema | None:
    """The schema that the ingester is told."""
    running = edited.running.core.ingestions.get(GlobalId(UID))
    assert running is not None
    source = running[1].ingestion.source
    assert isinstance(source, KafkaSource)
    return source.tables[0].schema


def manifest() -> Body:
    schema = {"configMap": {"name": "schemas", "key": "order.avsc"}}
    table = {"name": "t", "topic": "t", "format": "avro", "schema": schema}
    spec = {
        "instance": "default",
        "deletionPolicy": "Delete",
        "kafka": {"brokers": ["k:9"], "tables": [table]},
    }
    created = "2026-01-01T00:00:00Z"
    return body("DataSource", spec, "s", uid=UID, creationTimestamp=created, finalizers=[FINALIZER])
