"""The destinations of a materialized view outside of Tidemark, each as the protocol has it.

materializedView: {postgresSink: {...}, kafkaSink: {...}}
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.publish import history_ms
from tidemark_operator.resources.manifest.sinks.kafka_sink import parse_kafka_sink
from tidemark_operator.resources.manifest.sinks.postgres_sink import parse_postgres_sink
from tidemark_protocol.plan.dataflow import OutsideSink
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink


@dataclass(frozen=True, slots=True)
class ViewSinks:
    """None: the view has no such sink."""

    postgres: PostgresSink | None = None
    kafka: KafkaSink | None = None

    @classmethod
    def parse(cls, view: Fields, owner: str) -> ViewSinks:
        """`view`: the fields of `materializedView`. `owner`: the view's name in all namespaces."""
        postgres = parse_postgres_sink(view.child("postgresSink"), owner) if view.has("postgresSink") else None
        kafka = parse_kafka_sink(view.child("kafkaSink"), owner) if view.has("kafkaSink") else None
        return cls(postgres, kafka)

    @property
    def all(self) -> tuple[OutsideSink, ...]:
        return tuple(sink for sink in (self.postgres, self.kafka) if sink is not None)

    @property
    def history_ms(self) -> int:
        """The longest history of the sinks, as in Publish.history_ms; 0 where there is no sink."""
        postgres = 0 if self.postgres is None else history_ms(self.postgres.every_ms)
        return max(postgres, 0 if self.kafka is None else self.kafka.history_ms)
