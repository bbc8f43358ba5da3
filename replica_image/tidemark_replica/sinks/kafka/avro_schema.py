"""The Avro schemas of a topic's keys and values, from the columns of the view.

    key          record Key       {k: [null, long]}
    value        record Value     {k: [null, long], name: [null, string], ...}
    debezium     record Envelope  {before: [null, Value], after: [null, Value], op: string, ts_ms: long}

Each column, element and field is a union with null, whose default is null: so a column that comes or goes is compatible
in both directions. Their namespace is the topic's name. The same columns give the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidemark_protocol.types import SqlType, TypeNotSupported
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.kafka.stop import SCHEMA_UNFIT
from tidemark_replica.values.arrow_types import sql_type

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: dict[str, Any] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def key_schema(topic: str, columns: pa.Schema, key: Sequence[str]) -> str:
    """The schema's text. Raises DestinationStopped."""
    return _text(_Names(topic).record("Key", (columns.field(name) for name in key)))


def value_schema(topic: str, columns: pa.Schema, *, is_event: bool) -> str:
    """The schema's text; `is_event`: of the debezium envelope. Raises DestinationStopped."""
    names = _Names(topic)
    value = names.record("Value", columns)
    if not is_event:
        return _text(value)
    del value["namespace"]  # the record takes that of the envelope
    fields = [
        {"name": "before", "type": ["null", value], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": "long"},
    ]
    return _text({"type": "record", "name": "Envelope", "namespace": names.space, "fields": fields})


def _text(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"))


class _Names:
    """Makes records, whose names differ. `space`: their namespace."""

    def __init__(self, topic: str) -> None:
        self.space = ".".join(re.sub("^(?=[0-9]|$)", "_", re.sub("\\W", "_", part)) for part in topic.split("."))
        self._used = {"Key", "Value", "Envelope"}

    def record(self, name: str, columns: Iterable[pa.Field]) -> dict[str, Any]:
        fields = []
        for column in columns:
            try:
                type = sql_type(column.type)
            except TypeNotSupported as error:
                raise DestinationStopped(SCHEMA_UNFIT, f"column {column.name}: {error}; leave it out") from None
            fields.append(self._field(column.name, type, column.name, f"{name}_{column.name}"))
        return {"type": "record", "name": name, "namespace": self.space, "fields": fields}

    def _field(self, name: str, type: SqlType, column: str, path: str) -> dict[str, Any]:
        if not _NAME.fullmatch(name):
            raise DestinationStopped(
                SCHEMA_UNFIT,
                f"column {column}: {name[:128]!r} is no name of Avro, which has letters of ASCII, digits and _: rename"
                " it in the SQL",
            )
        return {"name": name, "type": ["null", self._type(type, column, path)], "default": None}

    def _type(self, type: SqlType, column: str, path: str) -> Any:
        if type.is_decimal:
            return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
        if type.is_array:
            return {"type": "array", "items": ["null", self._type(type.element, column, path)]}
        if type.is_struct:
            own = self._unused(path)
            fields = [self._field(name, each, column, f"{path}_{name}") for name, each in type.fields]
            return {"type": "record", "name": own, "fields": fields}
        return _SIMPLE[type.name]

    def _unused(self, name: str) -> str:
        found, number = name, 2
        while found in self._used:
            found, number = f"{name}_{number}", number + 1
        self._used.add(found)
        return found
