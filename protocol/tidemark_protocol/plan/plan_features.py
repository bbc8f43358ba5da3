"""Plan features: parts of plans and of ingestions that older replicas cannot decode.

    plan ──► requires `refresh`     only replicas that list `refresh` in their Description are sent the plan;
                                    others could not decode its bytes, and would end the connection

Each class or field that is added to them has a feature here, by its wire name. A field with its default value is not
encoded, so a plan without the new value requires no feature. A replica lists all features of its release.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tidemark_protocol.types import SqlType
from tidemark_protocol.vocabulary import entry_of

FEATURES = {
    "MaterializedViewSink.refresh": "refresh",
    "MaterializedViewSink.refresh_policy": "refreshPolicy",
    "MaterializedViewSink.publish": "publish",
    "PublishedView.empty_on_error": "publishEmptyOnError",
    "PublishedView.change_data_feed": "publishChangeDataFeed",
    "PublishedView.partition_by": "publishPartitions",
    "PublishedView.file_bytes": "publishFileSize",
    "PublishedView.chosen": "publishLocation",
    "PublishedView.iceberg": "publishIceberg",
    "PublishedView.exact_texts": "publishExactPartitions",
    "MaterializedViewSink.postgres": "postgresSink",
    "MaterializedViewSink.kafka": "kafkaSink",
    "KafkaSink.registry": "kafkaSinkAvro",
    "KafkaSink.registry_secret": "kafkaSinkAvro",
    "IntrospectionSource": "introspectionSource",
    "PostgresTable.successor": "postgresSuccessors",
    "PostgresSource.all_tables": "postgresPublications",
    "FilesTable.added": "filesSuccessors",
    "KafkaTable.added": "kafkaSuccessors",
    "KafkaTable.successor": "kafkaFurtherSuccessors",
    "KafkaTable.marked_in_avro": "kafkaAvroTransactions",
    "IngestedTable.bound_as": "boundNames",
    "KafkaSchema.config_map": "schemaConfigMaps",
}
"""The features, by `Class` or `Class.field`. Contents that these had when they came need no entry of their own."""
VALUE_FEATURES = {("FilesTable.format", "avro"): "filesAvro"}
"""The features, by `Class.field` and its value, where replicas that know the field do not know the value."""
COMBINED_FEATURES = {frozenset({"PublishedView.partition_by", "PublishedView.iceberg"}): "publishIcebergPartitions"}
"""The features, by fields of one class, where replicas that know each of them do not know both together."""
SUPPORTED_FEATURES = tuple(sorted({*FEATURES.values(), *VALUE_FEATURES.values(), *COMBINED_FEATURES.values()}))


def required_features(value: Any) -> frozenset[str]:
    """The features that a tree of dataclasses of the protocol requires."""
    features: set[str] = set()
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, tuple):
            todo += each
        elif not isinstance(each, SqlType) and dataclasses.is_dataclass(each):
            cls: Any = type(each)
            own, fields = _members(cls)
            features |= own
            given = set[str]()
            for name, member, default, feature in fields:
                held = getattr(each, name)
                if held is not default and held != default:
                    features |= feature
                    given.add(member)
                    if isinstance(held, str) and (word := VALUE_FEATURES.get((member, held))):
                        features.add(word)
                    todo.append(held)
            features.update(word for members, word in COMBINED_FEATURES.items() if members <= given)
    return frozenset(features)


@functools.cache
def _members(cls: Any) -> tuple[frozenset[str], tuple[tuple[str, str, Any, frozenset[str]], ...]]:
    """The feature of a class, and those of its fields with their defaults."""
    name, members = entry_of(cls)
    places = ((member.attribute, f"{name}.{member.wire_name}", member.default) for member in members)
    return _feature_of(name), tuple((attribute, place, given, _feature_of(place)) for attribute, place, given in places)


def _feature_of(member: str) -> frozenset[str]:
    return frozenset({FEATURES[member]} if member in FEATURES else ())
