"""The ordinary Delta table that a materialized view is published as, and where such tables lie.

    <storage location>/<namespace>/_published/<dataflow>/<view>
    <storage location>/<namespace>/_elsewhere/<dataflow>/<hash>     names a table at a location of a manifest's choice

Shards lie beside the folder, under names of resources, which are DNS labels and never `_published`. No published table
is inside another one, since a table's clean-up takes every file below it that it does not know. No segment of a chosen
location begins with `_`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark_protocol.ids import ShardId
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, STRING, TIMESTAMP, Column, SqlType
from tidemark_protocol.vocabulary import wire_name

FOLDER, ELSEWHERE = "_published", "_elsewhere"
PARTITION_TYPES = (BOOLEAN, SqlType("tinyint"), SqlType("smallint"), INT, BIGINT, DATE, STRING)
PARTITION_TIMES = (TIMESTAMP, SqlType("timestamp_ntz"))
"""The types of partition columns, beside DECIMAL: those whose text in a Delta log is exact, and equal for equal
values."""
_REMOVAL = "published"
_REMOVAL_AT = "published-at"


@wire_name("PublishedView")
@dataclass(frozen=True)
class PublishedView:
    """`owner`: the view's name in all namespaces, which the table keeps. `every_ms`: the least time between commits, 0
    for each change; commits are at multiples of it. `retention_hours`: how long replaced files stay for readers.
    `empty_on_error`: the table has no rows while the view has errors; else it keeps the rows of before.
    `change_data_feed`: readers may ask which rows came and went. `partition_by`: the partition columns. `file_bytes`:
    the wished size of its files; 0 for the replica's own. `chosen`: a manifest chose the location. `iceberg`: the table
    of the instance's Iceberg catalogue that follows, as `namespace.name`; empty: none. `exact_texts`: a partition
    column is a DECIMAL or a timestamp. Older replicas do not know which of the texts of such a value to write."""

    location: str
    owner: str
    every_ms: int
    retention_hours: int
    empty_on_error: bool = False
    change_data_feed: bool = False
    partition_by: tuple[str, ...] = ()
    file_bytes: int = 0
    chosen: bool = False
    iceberg: str = ""
    exact_texts: bool = False

    def of_columns(self, columns: Sequence[Column]) -> PublishedView:
        """The same for a view of these columns."""
        texts = {column.name for column in columns if _has_several_texts(column.type)}
        return replace(self, exact_texts=not texts.isdisjoint(self.partition_by))

    def check(self) -> None:
        """Raises ValueError where a number is negative."""
        if self.every_ms < 0 or self.retention_hours < 0 or self.file_bytes < 0:
            numbers = f"{self.every_ms} ms, with {self.retention_hours} h of retention, in {self.file_bytes} bytes"
            raise ValueError(f"a view published every {numbers}")


def can_partition(type: SqlType) -> bool:
    """Whether a column of the type can be a partition column."""
    return type in PARTITION_TYPES or _has_several_texts(type)


def _has_several_texts(type: SqlType) -> bool:
    """Whether a value of the type could be written in several ways: partitions have one of them."""
    return type.is_decimal or type in PARTITION_TIMES


def published_folder(storage_location: str, namespace: str, dataflow: str) -> str:
    """The folder of the published tables of a Dataflow."""
    return f"{storage_location.rstrip('/')}/{namespace}/{FOLDER}/{dataflow}"


def published_location(storage_location: str, namespace: str, dataflow: str, view: str) -> str:
    """The location of the published table of a view."""
    return f"{published_folder(storage_location, namespace, dataflow)}/{view}"


def is_chosen(location: str) -> bool:
    """Whether a manifest chose the location of this published table."""
    return f"/{FOLDER}/" not in location


def location_hash(location: str) -> str:
    """A name for a chosen location: 16 hexadecimal digits."""
    return hashlib.sha256(location.encode()).hexdigest()[:16]


def removal_id(uid: str, owner: str, location: str) -> ShardId:
    """The id under which DeleteShard names a published table: `uid` of the Dataflow, `owner` as in PublishedView. No
    shard has such an id: a replica that does not know it refuses. A view may have left tables at several locations that
    manifests chose: their ids are of another kind, which replicas that know none of such locations refuse, too."""
    if is_chosen(location):
        return ShardId(f"{_REMOVAL_AT}/{uid}/{owner}/{location_hash(location)}")
    return ShardId(f"{_REMOVAL}/{uid}/{owner}")


def removal_of(id: ShardId) -> tuple[str, str] | None:
    """Uid and owner of the published table that the id names; None where it names a shard."""
    kind, _, rest = id.partition("/")
    uid, _, named = rest.partition("/")
    owner = named.partition("/")[0]
    return (uid, owner) if kind in (_REMOVAL, _REMOVAL_AT) and owner else None
