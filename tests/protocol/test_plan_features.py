"""Plan features: each addition to plans has one, and replicas without it are not sent the plan."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import replace
from typing import Any

from tests.protocol.samples import INGESTION, dataflow
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.plan.codec import _choices, _fields
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink
from tidemark_protocol.plan.ingestion import (
    FilesSource,
    FilesTable,
    IntrospectionSource,
    PostgresSource,
    PostgresTable,
    SourceSpec,
)
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.plan.plan_features import FEATURES, SUPPORTED_FEATURES, required_features
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.types import SqlType
from tidemark_protocol.vocabulary import wire_name_of
from tidemark_protocol.wire.describe import description_from_proto, description_to_proto

FIRST = """
AccumulableReduce: aggregates
Aggregate: argument distinct filter function order parameters type
BasicReduce: aggregates
BuildDesc: id plan
Call: arguments function nullable type
Changes: input
CollationReduce: parts positions
Column: name nullable type
ColumnRef: index nullable type
ColumnType: nullable type
Constant: error rows schema
ConstantRow: diff values
ContinualTaskSink: own shard watches
CopyToSink: columns format location
DataflowDescription: as_of index_exports index_imports initial_storage_as_of lir_version name objects settings
DataflowDescription: sink_exports source_imports until
DeltaJoin: closure paths
DeltaPath: source stages
DistinctReduce:
ErrorValue: code expression
FlatMap: arguments function input mfp_after produces
Get: id key schema
HierarchicalReduce: aggregates monotonic
IndexExport: columns id key on
IndexImport: id key monotonic on schema
Join: inputs plan
JoinStage: closure lookup lookup_key lookup_thinning null_safe stream_key stream_thinning
Let: body id value
LetRec: bindings body
LinearJoin: source stages
Literal: type value
MapFilterProject: expressions input lower predicates projection upper
MaterializedViewSink: shard
Mfp: input mfp
Negate: input
OrderKey: column descending nulls_last
RecursiveBinding: id max_iterations return_at_limit value
Reduce: input key mfp_after plan values
Settings: ansi time_zone
ShardMetadata: columns location shard_id
SinkExport: id on sink
SourceImport: columns id mfp monotonic shard
SubscribeSink: columns up_to with_snapshot
Threshold: input
TopK: group_key input limit offset order plan
TopKPlan: kind
Union: consolidate_output inputs
Window: calls input order partition
WindowCall: arguments frame function ignore_nulls parameters type
WindowFrame: lower unit upper
"""
"""The vocabulary of replicas that list no features. It never grows."""
WITHIN_FEATURES = """
KafkaSink: brokers envelope format history_ms key owner partitions progress_topic replication secret topic
PostgresSink: database every_ms host key owner port schema secret ssl_mode table
PublishedView: every_ms location owner retention_hours
RefreshSchedule: aligned_to at every_ms
"""
"""The classes that came with the feature of a field, at the time. A later field of theirs has a feature of its own."""

FIRST_SOURCES = "FilesSource TpchSource NexmarkSource DeltaSource PostgresSource KafkaSource WrittenSource"
"""The kinds of sources that came before ingestions required features. It never grows."""
WITHIN_SOURCES = {
    "PostgresTable.successor",
    "PostgresSource.all_tables",
    "FilesTable.added",
    "KafkaTable.added",
    "KafkaTable.successor",
    "KafkaTable.marked_in_avro",
    "IngestedTable.bound_as",
    "KafkaSchema.config_map",
}
"""The fields that sources and their tables got later, and an older replica would do without."""


def test_each_addition_has_a_feature_name() -> None:
    """Older replicas refuse unknown classes and fields, so each addition needs a feature."""
    first: set[str] = set()
    for line in (FIRST.strip() + WITHIN_FEATURES).strip().splitlines():
        name, _, fields = line.partition(":")
        first |= {name, *(f"{name}.{field}" for field in fields.split())}
    kinds = {wire_name_of(kind) for kind in typing.get_args(SourceSpec)} - set(FIRST_SOURCES.split())
    added = (_members(DataflowDescription) - first) | kinds | WITHIN_SOURCES
    assert added == set(FEATURES), "what is new has a line in plan_features.FEATURES"


def test_a_plan_needs_the_features_of_its_own_nodes_alone() -> None:
    """A field with its default is not encoded, so it requires no feature."""
    plain = dataflow("d", 300)
    assert plain.required_features == frozenset()
    assert replace(plain, until=Time(400)).required_features == frozenset()

    (export,) = plain.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    refreshed = replace(export, sink=replace(export.sink, refresh=RefreshSchedule(every_ms=1000)))
    assert replace(plain, sink_exports=(export, refreshed)).required_features == {"refresh"}
    assert required_features((plain, refreshed)) == {"refresh"}
    anew = replace(refreshed, sink=replace(refreshed.sink, refresh_policy="full"))
    assert required_features(anew) == {"refresh", "refreshPolicy"}
    kafka = KafkaSink(("k:9092",), "t", ("k",), "o", "p", format="avro", registry="http://registry:8081")
    written = replace(export, sink=replace(export.sink, kafka=kafka))
    assert required_features(written) == {"kafkaSink", "kafkaSinkAvro"}
    assert required_features(replace(INGESTION, source=IntrospectionSource(()))) == {"introspectionSource"}
    assert required_features(INGESTION) == frozenset()
    tables = (replace(INGESTION.tables[0], bound_as="a@later"),)
    assert required_features(replace(INGESTION, tables=tables)) == {"boundNames"}
    table = PostgresTable("a.2", "public", "a")
    database = PostgresSource("db", 5432, "d", "s", "p", (table,))
    assert required_features(database) == frozenset()
    assert required_features(replace(database, tables=(replace(table, successor=True),))) == {"postgresSuccessors"}
    assert required_features(replace(database, all_tables=True)) == {"postgresPublications"}
    assert required_features(FilesSource((FilesTable("a.2", "json", "/in", added=("n",)),))) == {"filesSuccessors"}
    assert required_features(KafkaTable("a.2", "a", "json", (), added=("n",))) == {"kafkaSuccessors"}
    assert required_features(KafkaTable("a.2", "a", "avro", (), successor=True)) == {"kafkaFurtherSuccessors"}
    assert required_features(KafkaTable("a", "a", "avro", (), marked_in_avro=True)) == {"kafkaAvroTransactions"}
    assert required_features(FilesSource((FilesTable("a", "avro", "/in"),))) == {"filesAvro"}
    assert {"refresh", "filesAvro"} <= set(SUPPORTED_FEATURES)


def test_a_description_has_the_features_that_a_replica_knows() -> None:
    """An older replica lists no features; unknown features of a newer one are kept."""
    for words in ((), SUPPORTED_FEATURES, ("refresh", "of tomorrow")):
        description = Description("incarnation", None, 0, (), (), (), words)
        assert description_from_proto(description_to_proto(description)) == description
    assert Description("incarnation", None, 0, (), (), ()).plan_features == ()


def _members(root: Any) -> set[str]:
    """The classes and fields that the codec decodes in a plan."""
    found, seen, todo = set[str](), set[Any](), [root]
    while todo:
        for choice in _choices(todo.pop()):
            if typing.get_origin(choice) is tuple:
                todo.append(typing.get_args(choice)[0])
            if choice is SqlType or not dataclasses.is_dataclass(choice) or choice in seen:
                continue
            seen.add(choice)
            name = wire_name_of(typing.cast(type, choice))
            found.add(name)
            fields = _fields(choice)
            found |= {f"{name}.{field}" for field in fields}
            todo += [hint for _, hint in fields.values()]
    return found
