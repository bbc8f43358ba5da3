"""ComputeInstance: where shards live, and how far back they can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.iceberg import IcebergCatalogue
from tidemark_operator.resources.manifest.locations import publish_prefixes, shard_location
from tidemark_operator.resources.manifest.meta import InstanceName, Meta, spec_of
from tidemark_operator.resources.manifest.quantities import size_bytes
from tidemark_protocol.messages.replica_settings import LogLevel

KIND = "ComputeInstance"
PLURAL = "computeinstances"

DEFAULT_LAG = "60s"
DEFAULT_RESULT_SIZE = "1Gi"


def storage_location(body: Mapping[str, Any]) -> str:
    """The place of the shards of a ComputeInstance, also where other fields of it cannot be parsed. Raises
    ResourceError."""
    return shard_location(spec_of(body).child("storage"), "location")


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """The read frontier (since) trails the write frontier (upper) by `lag_ms`."""

    lag_ms: int

    @classmethod
    def parse(cls, fields: Fields) -> ReadPolicy:
        return cls(duration_ms(fields, "lag", DEFAULT_LAG))


@dataclass(frozen=True, slots=True)
class ComputeInstance:
    meta: Meta
    location: str
    """A plain absolute path, or s3://bucket/prefix. Shards are below it, by namespace, name and export."""
    credentials: str
    """The Secret by which replicas are known to the object store; empty: none."""
    source_secrets: tuple[str, ...]
    """The Secrets that sources may name, sorted."""
    publish_locations: tuple[str, ...]
    """The places below which its views may be published, sorted."""
    iceberg: IcebergCatalogue | None
    """The catalogue for Iceberg tables of its views."""
    read_policy: ReadPolicy
    hydration_concurrency: int
    """The number of dataflows that a replica hydrates at a time."""
    log_level: LogLevel
    """The log level of its replicas."""
    max_result_bytes: int
    """A query whose answer takes more is refused."""
    suspend: bool

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ComputeInstance:
        spec = spec_of(body)
        return cls(
            meta=Meta.parse(body),
            location=storage_location(body),
            credentials=spec.child("storage").text("secretName", ""),
            source_secrets=tuple(sorted(set(spec.texts("sourceSecrets")))),
            publish_locations=publish_prefixes(spec.child("publish"), "locations"),
            iceberg=IcebergCatalogue.parse(spec),
            read_policy=ReadPolicy.parse(spec.child("readPolicy")),
            hydration_concurrency=spec.integer("hydrationConcurrency", 4),
            log_level=spec.choice("logLevel", LogLevel, LogLevel.INFO),
            max_result_bytes=size_bytes(spec, "maxResultSize", DEFAULT_RESULT_SIZE),
            suspend=spec.flag("suspend", False),
        )

    @property
    def name(self) -> InstanceName:
        return InstanceName(self.meta.name)
