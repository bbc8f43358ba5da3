"""Has a replica inspect a source, with the schemas that are in ConfigMaps.

    schema.configMap ──► the operator reads the entry ──► text ──► a replica inspects ──► the text is pinned

Replicas read Secrets, which are mounted; a ConfigMap is no secret, so none has to be mounted for it. It is read when
tables are determined, and never again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.kube.client import CONFIG_MAPS, ApiError, Kube
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan.ingestion import IngestionDescription, SourceSpec
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource

LENGTH_MAX = 1 << 19
"""Characters of a schema; replicas take no more of all schemas of a source."""


class _Unreadable(Exception):
    """An entry of a ConfigMap cannot be read. The message says why."""


async def inspected(
    kube: Kube,
    namespace: str,
    running: RunningInstance,
    source: SourceSpec,
    pinned: IngestionDescription | None = None,
) -> compute_pb2.InspectSourceResponse:
    """A replica's answer; one with an error where an entry of a ConfigMap cannot be read. `pinned`: the source that
    tables are added to, if they are. Raises Waiting, ApiError."""
    try:
        given = await _with_texts(kube, namespace, source)
    except _Unreadable as error:
        return compute_pb2.InspectSourceResponse(error=str(error))
    return await running.inspect(given, pinned)


async def _with_texts(kube: Kube, namespace: str, source: SourceSpec) -> SourceSpec:
    """The source with the texts that ConfigMaps have. Raises _Unreadable, ApiError."""
    if not isinstance(source, KafkaSource):
        return source
    found: dict[str, Mapping[str, str]] = {}
    for schema in _in_config_maps(source):
        if schema.config_map not in found:
            found[schema.config_map] = await _entries(kube, namespace, schema.config_map)

    def with_text(schema: KafkaSchema | None) -> KafkaSchema | None:
        if schema is None or not _is_wanted(schema):
            return schema
        text, where = found[schema.config_map].get(schema.key, ""), f"ConfigMap {schema.config_map}"
        if not text:
            raise _Unreadable(f"{where} has no text under {schema.key}, or an empty one: a schema is read from there")
        if len(text) > LENGTH_MAX:
            raise _Unreadable(f"{where}: the text under {schema.key} is longer than {LENGTH_MAX} characters")
        return replace(schema, text=text)

    tables = (replace(t, schema=with_text(t.schema), key_schema=with_text(t.key_schema)) for t in source.tables)
    return replace(source, tables=tuple(tables))


def _in_config_maps(source: KafkaSource) -> Iterator[KafkaSchema]:
    for table in source.tables:
        yield from (each for each in (table.schema, table.key_schema) if each is not None and _is_wanted(each))


def _is_wanted(schema: KafkaSchema) -> bool:
    """Whether the text is in a ConfigMap, and not known yet."""
    return bool(schema.config_map) and not schema.text


async def _entries(kube: Kube, namespace: str, name: str) -> Mapping[str, str]:
    """The texts of a ConfigMap. Raises _Unreadable, ApiError."""
    try:
        body = await kube.get(CONFIG_MAPS, namespace, name)
    except ApiError as error:
        if error.status != 403:
            raise
        raise _Unreadable(f"the operator may not read ConfigMap {name}: grant it get, as its chart does") from None
    if body is None:
        raise _Unreadable(f"ConfigMap {name} does not exist in namespace {namespace}: a schema is read from there")
    return body.get("data") or {}
