"""The publication of a materialized view as an ordinary table, as manifests write it.

publish: {every: 1m, retention: 24h, onError: keep, changeDataFeed: false, partitionBy: [day], fileSize: 32Mi,
          location: s3://lake/spent, iceberg: {table: sales.spent}}

`every: onCommit` publishes each change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.locations import published_location
from tidemark_operator.resources.manifest.quantities import size_bytes
from tidemark_protocol.plan.sinks.publish import PARTITION_TIMES, PARTITION_TYPES, PublishedView, can_partition
from tidemark_protocol.types import Column

ON_COMMIT = "onCommit"
DEFAULT_EVERY, DEFAULT_RETENTION = "1m", "24h"
_TABLE = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_]{0,127}(\.[A-Za-z0-9_][-A-Za-z0-9_]{0,127}){1,7}")
_HOUR_MS = 3_600_000
_MORE_HISTORY_MS = 300_000


class OnError(Enum):
    """The contents of a published table while its view has errors: its last right rows, or none."""

    KEEP = "keep"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class PublishSpec:
    """`every_ms`: 0 for each change. `retention_hours`: how long replaced files stay, in whole hours. `partition_by`:
    the partition columns. `file_bytes`: the wished size of files; 0 where the manifest does not say. `location`: of the
    table; empty: in the storage of the instance. `iceberg`: the table of the instance's Iceberg catalogue that follows;
    empty: none."""

    every_ms: int
    retention_hours: int
    on_error: OnError = OnError.KEEP
    change_data_feed: bool = False
    partition_by: tuple[str, ...] = ()
    file_bytes: int = 0
    location: str = ""
    iceberg: str = ""

    @classmethod
    def parse(cls, publish: Fields) -> PublishSpec:
        return cls(
            every_ms=every_ms(publish, DEFAULT_EVERY),
            retention_hours=-(-duration_ms(publish, "retention", DEFAULT_RETENTION) // _HOUR_MS),
            on_error=publish.choice("onError", OnError, OnError.KEEP),
            change_data_feed=publish.flag("changeDataFeed", False),
            partition_by=publish.texts("partitionBy"),
            file_bytes=size_bytes(publish, "fileSize", "") if publish.has("fileSize") else 0,
            location=published_location(publish, "location") if publish.has("location") else "",
            iceberg=_iceberg_table(publish.child("iceberg")) if publish.has("iceberg") else "",
        )

    def view(self, location: str, owner: str) -> PublishedView:
        """The same, as plans have it. `owner`: the view's name in all namespaces."""
        empty = self.on_error is OnError.EMPTY
        features = empty, self.change_data_feed, self.partition_by, self.file_bytes, bool(self.location), self.iceberg
        return PublishedView(location, owner, self.every_ms, self.retention_hours, *features)

    def refusal(self, columns: Sequence[Column]) -> str:
        """The reason why a view of these columns cannot be published so; empty where it can."""
        types = {column.name: column.type for column in columns}
        for name in self.partition_by:
            if name not in types:
                return f"partitionBy names {name}, which is no column of the view: {', '.join(types)}"
            if not can_partition(types[name]):
                allowed = ", ".join(("decimal", *map(str, (*PARTITION_TYPES, *PARTITION_TIMES))))
                return f"partitionBy names {name} of type {types[name]}: a partition column is one of {allowed}"
        decimals = [types[name] for name in self.partition_by if types[name].is_decimal]
        if self.iceberg and len(set(decimals)) < len(decimals):
            return (
                "partitionBy names two columns of the same DECIMAL type, which manifests of an Iceberg table cannot "
                "have: cast one to another precision in the SQL, or take iceberg out of publish"
            )
        if self.partition_by and len(self.partition_by) == len(types):
            return "partitionBy names all columns of the view: a file needs one that is not among them"
        return ""

    @property
    def history_ms(self) -> int:
        """The milliseconds by which the view's since trails its upper at least. A publisher that was away for less
        still finds the changes that it has not published."""
        return history_ms(self.every_ms)


def _iceberg_table(iceberg: Fields) -> str:
    """The name of a table in a catalogue: namespaces and name, with dots between."""
    name = iceberg.text("table")
    if not _TABLE.fullmatch(name):
        raise InvalidValue(iceberg.at("table"), "must be namespace.name, of letters, digits, _ and -")
    return name


def every_ms(fields: Fields, default: str) -> int:
    """The field `every`: the least milliseconds between two commits, 0 for each change."""
    return 0 if fields.text("every", default) == ON_COMMIT else duration_ms(fields, "every", default)


def history_ms(every_ms: int) -> int:
    """The milliseconds by which the since of a view trails its upper at least, where it is written elsewhere every so
    many ms."""
    return 2 * every_ms + _MORE_HISTORY_MS
