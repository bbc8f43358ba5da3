"""The definition of a Delta table that a source pins; the source refuses other tables by name before it reads a row.

metaData ──► id               another id is another table
         ──► schema           declared columns keep their types, and their physical names (column mapping)
         ──► tidemark.format  the rows are updates of a view of Tidemark's, with a time, a diff and perhaps an error
protocol ──► reader features  known ones are read right; a table with any other is refused
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import deltalake

from tidemark_persist import DIFF, ERROR, TIME
from tidemark_persist.log.create import FORMAT_VERSION
from tidemark_persist.log.entry import FORMAT
from tidemark_protocol.types import Column, SqlType, TypeNotSupported
from tidemark_replica.storage.delta.physical_names import Physical, physical_of
from tidemark_replica.storage.delta.stop import COLUMN_CHANGED, FEATURE_NOT_SUPPORTED
from tidemark_replica.storage.errors import TableStopped

READABLE_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_PRIMITIVE = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_MODE = "delta.columnMapping.mode"


@dataclass(frozen=True)
class DeltaDefinition:
    """The `metaData` of a version."""

    id: str
    fields: Sequence[Mapping[str, Any]]
    configuration: Mapping[str, str]

    @classmethod
    def of_action(cls, metadata: Mapping[str, Any]) -> DeltaDefinition:
        fields = json.loads(metadata["schemaString"])["fields"]
        return cls(metadata["id"], fields, metadata.get("configuration") or {})

    @classmethod
    def of_table(cls, table: deltalake.DeltaTable) -> DeltaDefinition:
        metadata = table.metadata()
        return cls(str(metadata.id), json.loads(table.schema().to_json())["fields"], metadata.configuration)

    @property
    def keeps_updates(self) -> bool:
        """Whether each row is an update, as another Tidemark writes them. Raises TableStopped for a later format."""
        format = self.configuration.get(FORMAT)
        if format not in (None, FORMAT_VERSION):
            text = (
                f"{FORMAT} is {format!r}, of another version of Tidemark; this one reads {FORMAT_VERSION!r}: upgrade it"
            )
            raise TableStopped(FEATURE_NOT_SUPPORTED, text)
        return format is not None

    def columns(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The columns of these names, in their order; all where none is named. Raises TableStopped for a name that the
        table does not have, and for a type without a counterpart."""
        fields = {field["name"]: field for field in self.fields}
        if self.keeps_updates:
            fields = {name: field for name, field in fields.items() if name not in (TIME, DIFF, ERROR)}
        columns = []
        for name in names or fields:
            if name not in fields:
                raise TableStopped(COLUMN_CHANGED, f"the table has no column {name!r} (it has {', '.join(fields)})")
            try:
                columns.append(Column(name, SqlType.parse(type_text(fields[name]["type"]))))
            except TypeNotSupported as error:
                advice = "name the columns to take (columns), and leave it out"
                raise TableStopped(FEATURE_NOT_SUPPORTED, f"column {name!r}: {error}; {advice}") from None
        return tuple(columns)

    def physical_names(self, columns: Sequence[Column]) -> tuple[Physical, ...]:
        """The names of the columns in data files, and of the fields inside them.

        Raises TableStopped where a column is not as it was declared.
        """
        present = {field["name"]: field for field in self.fields}
        names = []
        for column, now in zip(columns, self.columns([c.name for c in columns]), strict=True):
            if now.type != column.type:
                text = f"column {column.name!r} was declared as {column.type} and is {now.type} now"
                raise TableStopped(COLUMN_CHANGED, text)
            names.append(self._physical_name(present[column.name]))
        return tuple(names)

    def _physical_name(self, field: Mapping[str, Any]) -> Physical:
        mode = self.configuration.get(_MODE, "none")
        if mode == "none":
            return str(field["name"])
        if mode != "name":
            raise TableStopped(FEATURE_NOT_SUPPORTED, f"column mapping of mode {mode!r} is not read; only mode name is")
        return physical_of(field)


def check_features(protocol: Mapping[str, Any]) -> None:
    """`protocol`: an action of that name. Raises TableStopped for what cannot be read."""
    features = set(protocol.get("readerFeatures") or ())
    version = protocol["minReaderVersion"]
    if unknown := sorted(features - READABLE_FEATURES):
        raise TableStopped(FEATURE_NOT_SUPPORTED, f"the table has reader features that are not read: {unknown}")
    if version > 3:
        raise TableStopped(FEATURE_NOT_SUPPORTED, f"the table needs a reader of version {version}; known are 1 to 3")


def protocol_of(table: deltalake.DeltaTable) -> Mapping[str, Any]:
    """The protocol of an opened version, as an action has it."""
    now = table.protocol()
    return {"minReaderVersion": now.min_reader_version, "readerFeatures": now.reader_features}


def type_text(type: Any) -> str:
    """A Delta type as a SQL type's text. Raises TypeNotSupported."""
    if isinstance(type, str):
        return _PRIMITIVE.get(type, type)
    if type["type"] == "array":
        return f"array<{type_text(type['elementType'])}>"
    if type["type"] == "struct":
        inside = (f"`{f['name'].replace('`', '``')}`:{type_text(f['type'])}" for f in type["fields"])
        return f"struct<{','.join(inside)}>"
    raise TypeNotSupported(f"type {type['type']} has no counterpart")
