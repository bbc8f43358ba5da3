"""A topic of a Kafka cluster that a view is written to, each time in one transaction.

kafkaSink: {brokers: ["kafka.shop.svc:9092"], topic: spent, key: [name], create: {partitions: 6}}
"""

from __future__ import annotations

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.plan.sinks.kafka import KafkaSink

PROGRESS = "-tidemark-progress"
DEFAULT_HISTORY = "1h"


def parse_kafka_sink(fields: Fields, owner: str) -> KafkaSink:
    """`owner`: the view's name in all namespaces. Raises ResourceError."""
    topic, create = fields.text("topic"), fields.child("create")
    registry = fields.child("registry")
    return KafkaSink(
        brokers=fields.texts("brokers"),
        topic=topic,
        key=fields.texts("key"),
        owner=owner,
        progress_topic=fields.text("progressTopic", topic + PROGRESS),
        envelope=fields.text("envelope", "upsert"),
        format=fields.text("format", "json"),
        secret=fields.text("secret", ""),
        partitions=create.integer("partitions", 0),
        replication=create.integer("replication", 0),
        history_ms=duration_ms(fields, "history", DEFAULT_HISTORY),
        registry=registry.text("url", ""),
        registry_secret=registry.text("secret", ""),
    )
