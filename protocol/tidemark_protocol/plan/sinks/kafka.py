"""The topic that a materialized view is written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemark_protocol.vocabulary import wire_name

ENVELOPES, FORMATS = frozenset({"upsert", "debezium"}), frozenset({"json", "avro"})


@wire_name("KafkaSink")
@dataclass(frozen=True)
class KafkaSink:
    """A topic of one cluster, and how rows become records.

    `brokers`: `host:port` each. `secret`: names a Secret with settings of the connection; empty: none is needed. `key`:
    names of columns, unique together. `envelope`: `upsert` or `debezium`. `format`: `json` or `avro`. `progress_topic`:
    the topic that says how far the other one is. `owner`: the view's name in all namespaces. `partitions`: of a topic
    that has to be created; 0: it is not created. `replication`: the copies of a created topic's partitions; 0: as the
    brokers' default. `history_ms`: how far the since of the view trails its upper at least. `registry`: the URL of a
    registry of schemas, which `avro` needs; `registry_secret`: names a Secret as that of a KafkaSource does.
    """

    KIND: ClassVar[str] = "kafkaSink"
    """The kind of its Status, and the name of its field in a manifest."""

    brokers: tuple[str, ...]
    topic: str
    key: tuple[str, ...]
    owner: str
    progress_topic: str
    envelope: str = "upsert"
    format: str = "json"
    secret: str = ""
    partitions: int = 0
    replication: int = 0
    history_ms: int = 3_600_000
    registry: str = ""
    registry_secret: str = ""

    @property
    def target(self) -> str:
        """Where the rows go, for people."""
        return f"topic {self.topic} of {self.brokers[0]}"

    def check(self) -> None:
        """Raises ValueError where something is missing, or not known."""
        if not (self.brokers and self.key and self.topic and self.progress_topic):
            raise ValueError("a Kafka sink without brokers, topics or a key")
        if self.topic == self.progress_topic:
            raise ValueError(f"a Kafka sink whose topics are both {self.topic}")
        if self.envelope not in ENVELOPES or self.format not in FORMATS:
            raise ValueError(f"a Kafka sink with envelope {self.envelope[:32]!r} and format {self.format[:32]!r}")
        if (self.format == "avro") != bool(self.registry):
            raise ValueError("a Kafka sink of Avro without a registry, or of JSON with one")
        if min(self.partitions, self.replication, self.history_ms) < 0:
            raise ValueError("a Kafka sink with a negative number")
