"""The schemas of a sink's topic in the registry: subjects `<topic>-key` and `<topic>-value`.

They are registered before a topic gets its first record, and by each process before it writes; the same schema has the
same id each time. The ids are kept, so the registry may be away while the topic is written.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.avro_schema import key_schema, value_schema
from tidemark_replica.sinks.kafka.envelopes import DEBEZIUM
from tidemark_replica.sinks.kafka.record_formats import AvroFormat, JsonFormat, RecordFormat
from tidemark_replica.sinks.kafka.stop import REGISTRY_AWAY, SCHEMA_REFUSED
from tidemark_replica.storage.kafka.connection import ReadSecret
from tidemark_replica.storage.schema_registry import NotTaken, RegistryAway, SchemaRegistry


class RegisteredSchemas:
    """Registers the schemas of one topic; used by one thread at a time."""

    def __init__(self, sink: KafkaSink, read_secret: ReadSecret) -> None:
        self._sink = sink
        secret = partial(read_secret, sink.registry_secret) if sink.registry_secret else None
        self._registry = SchemaRegistry(sink.registry, secret)
        self._ids: dict[str, tuple[str, int]] = {}
        """The text of the schema and its id, by subject."""

    def format(self, columns: pa.Schema, *, is_new: bool) -> RecordFormat:
        """The format of the topic's records. `columns`: the view's. `is_new`: the topic has no records, so ids that are
        known already are asked for once more. Raises DestinationStopped."""
        sink = self._sink
        if sink.format == "json":
            return JsonFormat()
        key = key_schema(sink.topic, columns, sink.key)
        value = value_schema(sink.topic, columns, is_event=sink.envelope == DEBEZIUM)
        if is_new:
            self._ids.clear()
        return AvroFormat(self._id(f"{sink.topic}-key", key), self._id(f"{sink.topic}-value", value))

    def _id(self, subject: str, text: str) -> int:
        known, id = self._ids.get(subject, ("", 0))
        if known == text:
            return id
        try:
            id = self._registry.register(subject, text)
        except RegistryAway as away:
            raise DestinationStopped(REGISTRY_AWAY, f"{away}; it is tried again") from None
        except NotTaken as refused:
            raise DestinationStopped(
                SCHEMA_REFUSED,
                f"the schema of subject {subject} is not registered: {refused}. Set the compatibility of the subject to"
                " NONE, delete its versions where nobody else uses them, or give the sink another topic",
            ) from None
        self._ids[subject] = text, id
        return id
