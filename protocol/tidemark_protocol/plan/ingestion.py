"""Sources: how outside data becomes shards.

    DataSource ── remap shard: tick -> end offsets of all tables (the binding)
               └─ one shard per table: exactly the data between two bindings

An `IngestionDescription` is what one replica at a time runs, fenced by a writer term. Schemas are part of it: they
were given by the user, or inferred once (`InspectSource`) and pinned in the resource's status.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column
from tidemark_protocol.vocabulary import wire_name


@wire_name("Option")
@dataclass(frozen=True)
class Option:
    """One reader option, as text: `header` = `true`."""

    name: str
    value: str


@wire_name("FilesTable")
@dataclass(frozen=True)
class FilesTable:
    """A table fed by the files in a directory that match `pattern`.

    `columns` None: not pinned yet. `on_bad_record`: `error` puts bad records in the table's errs; `deadLetter`
    puts them in the source's table `<name>_dead_letter`.
    """

    name: str
    format: str
    path: str
    pattern: str = "*"
    columns: tuple[Column, ...] | None = None
    options: tuple[Option, ...] = ()
    on_bad_record: str = "error"
    max_files_per_tick: int = 1000


@wire_name("FilesSource")
@dataclass(frozen=True)
class FilesSource:
    tables: tuple[FilesTable, ...]


@wire_name("TpchSource")
@dataclass(frozen=True)
class TpchSource:
    """TPC-H at `scale_factor` (as decimal text), then a definite stream of order transactions."""

    scale_factor: str
    transactions_per_second: int
    seed: int


SourceSpec = FilesSource | TpchSource


@wire_name("SourceTable")
@dataclass(frozen=True)
class SourceTable:
    """A table that a source offers."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    monotonic: bool = False


@wire_name("IngestedTable")
@dataclass(frozen=True)
class IngestedTable:
    """A table and the shard it goes to; `id` is the collection that dataflows import."""

    id: GlobalId
    table: SourceTable
    shard: ShardMetadata


@wire_name("IngestionDescription")
@dataclass(frozen=True)
class IngestionDescription:
    """What a replica needs to run a DataSource. `id` names the ingestion, `tick_ms` divides all of its times."""

    id: GlobalId
    name: str
    source: SourceSpec
    tick_ms: int
    remap_id: ShardId
    remap_location: str
    tables: tuple[IngestedTable, ...]
