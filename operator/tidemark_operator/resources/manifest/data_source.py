"""DataSource: tables that change, ingested into shards at a common tick.

`source` is what the protocol calls a SourceSpec, so that nothing is translated twice on the way to the replica:

    spec.loadGenerator.tpch     ->  TpchSource       eight tables, generated
    spec.loadGenerator.nexmark  ->  NexmarkSource    three tables, generated
    spec.files                  ->  FilesSource      one table for each entry, read from a directory (`file_table`)
    spec.delta                  ->  DeltaSource      one table for each entry, an existing Delta table (`delta_table`)
    spec.table                  ->  WrittenSource    one table for each entry, written by clients (`written_table`)
    spec.postgres               ->  PostgresSource   one table for each entry, a table of a database (`postgres`)
    spec.introspection          ->  IntrospectionSource   one table for each relation (`introspection`)
    spec.kafka                  ->  KafkaSource      one table for each entry, a topic (`kafka_source`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.locations import files_location
from tidemark_operator.resources.manifest.meta import InstanceName, Meta, spec_of
from tidemark_operator.resources.manifest.quantities import size_bytes
from tidemark_operator.resources.manifest.sources.delta_table import parse_delta_table
from tidemark_operator.resources.manifest.sources.file_table import parse_file_table
from tidemark_operator.resources.manifest.sources.introspection import parse_introspection
from tidemark_operator.resources.manifest.sources.kafka_source import parse_kafka
from tidemark_operator.resources.manifest.sources.postgres import excepted_tables, parse_postgres
from tidemark_operator.resources.manifest.sources.written_table import parse_written_table
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    FilesSource,
    NexmarkSource,
    SourceSpec,
    TpchSource,
    WrittenSource,
)

KIND = "DataSource"
PLURAL = "datasources"


class DeletionPolicy(Enum):
    """The fate of the tables of a deleted object: kept, or deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class DataSource:
    meta: Meta
    instance: InstanceName
    tick_ms: int
    source: SourceSpec
    suspend: bool
    deletion_policy: DeletionPolicy
    adopt: bool
    """Whether tables of an earlier DataSource of this name are gone on with."""
    evolving: frozenset[str] = frozenset()
    """The tables that take further columns as they come upstream."""
    all_evolve: bool = False
    """Whether the tables of a publication that is followed as a whole do so, too, but those that the spec names."""
    all_relations: bool = False
    """Whether it is of kind introspection, and names no relations: it has all."""
    excepted: frozenset[tuple[str, str]] = frozenset()
    """Tables of a publication that is followed as a whole which are not followed: their schemas and names there."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> DataSource:
        spec = spec_of(body)
        return cls(
            meta=Meta.parse(body),
            instance=InstanceName(spec.text("instance")),
            tick_ms=duration_ms(spec, "tick", "1s"),
            source=_source(spec),
            suspend=spec.flag("suspend", False),
            deletion_policy=spec.choice("deletionPolicy", DeletionPolicy, DeletionPolicy.RETAIN),
            adopt=spec.flag("adopt", False),
            evolving=_evolving(spec),
            all_evolve=spec.has("postgres") and spec.child("postgres").has("evolve"),
            excepted=excepted_tables(spec.child("postgres")) if spec.has("postgres") else frozenset(),
            all_relations=spec.has("introspection") and not spec.child("introspection").texts("relations"),
        )


def _source(spec: Fields) -> SourceSpec:
    if spec.has("files"):
        return _files(spec.child("files"))
    if spec.has("delta"):
        return _delta(spec.child("delta"))
    if spec.has("table"):
        return _written(spec.child("table"))
    if spec.has("postgres"):
        return parse_postgres(spec.child("postgres"))
    if spec.has("kafka"):
        return parse_kafka(spec.child("kafka"))
    if spec.has("introspection"):
        return parse_introspection(spec.child("introspection"))
    generator = spec.child("loadGenerator")
    return _nexmark(generator.child("nexmark")) if generator.has("nexmark") else _tpch(generator.child("tpch"))


def _files(fields: Fields) -> FilesSource:
    directory = files_location(fields, "path")
    tables = tuple(parse_file_table(table, directory) for table in fields.children("tables"))
    return FilesSource(tables, fields.text("secret", ""), fields.text("endpoint", ""))


def _evolving(spec: Fields) -> frozenset[str]:
    kinds = [spec.child(kind) for kind in ("delta", "postgres", "files", "kafka") if spec.has(kind)]
    return frozenset(t.text("name") for kind in kinds for t in kind.children("tables") if t.has("evolve"))


def _delta(fields: Fields) -> DeltaSource:
    tables = tuple(map(parse_delta_table, fields.children("tables")))
    return DeltaSource(tables, fields.text("secret", ""), fields.text("endpoint", ""))


def _written(fields: Fields) -> WrittenSource:
    tables = tuple(parse_written_table(table) for table in fields.children("tables"))
    return WrittenSource(tables, size_bytes(fields, "maxTransactionBytes", "1Gi"))


def _tpch(fields: Fields) -> TpchSource:
    # a decimal text: a float might differ between the sides of the wire
    scale_factor = Decimal(repr(fields.number("scaleFactor", 0.01))).normalize()
    return TpchSource(
        scale_factor=format(scale_factor, "f"),
        transactions_per_second=fields.integer("transactionsPerSecond", 10),
        seed=fields.integer("seed", 1),
    )


def _nexmark(fields: Fields) -> NexmarkSource:
    return NexmarkSource(fields.integer("eventsPerSecond", 1000), fields.integer("seed", 1))
