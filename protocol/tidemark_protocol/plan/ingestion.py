"""Ingestion: how outside data becomes shards.

    DataSource ── remap shard: tick -> end offsets of all tables (the binding)
               └─ one shard per table: exactly the data between two bindings

One replica at a time runs an `IngestionDescription`; a writer term fences all others. It contains the schemas, which
the user gave, or which were inferred once (`InspectSource`) and pinned in the status of the resource.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_protocol.plan.reader_option import Option as Option
from tidemark_protocol.types import Column
from tidemark_protocol.vocabulary import wire_name

DEAD_LETTER = "_dead_letter"
"""The suffix of a table's name in the spec in that of the table of its dead letters (`successors.dead_letters`)."""
MALFORMED_RECORD = "MALFORMED_RECORD"
"""The code of errors of records that are no rows."""


@wire_name("FilesTable")
@dataclass(frozen=True)
class FilesTable:
    """A table from the files of a directory, or of s3://bucket/prefix, that match `pattern`.

    `columns` None: not pinned yet. `on_bad_record`: `error` turns bad records into errors of the table; `deadLetter`
    writes them to the table `<name>_dead_letter` of the source. `append_only`: no row is ever taken back, which makes
    some plans cheaper. `compression`: of csv and json `none`, `gzip` or `zstd`; empty where each file's name says it.
    `order`: `name` where each new object of a bucket has a name after those of all before. `primary_key`: names of the
    columns that no two rows have in common; none if empty. `added`: names of columns that an earlier table of the name
    in the spec had not (`successors.py`): files may lack them, and this table begins with all files of that one.
    """

    name: str
    format: str
    path: str
    pattern: str = "*"
    columns: tuple[Column, ...] | None = None
    options: tuple[Option, ...] = ()
    on_bad_record: str = "error"
    max_files_per_tick: int = 1000
    append_only: bool = False
    compression: str = ""
    order: str = ""
    primary_key: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@wire_name("FilesSource")
@dataclass(frozen=True)
class FilesSource:
    """Files of one or more directories, or prefixes of buckets.

    `secret`: the name of the Secret with the credentials of the buckets; empty where the instance's are used.
    `endpoint`: the URL of the store that they are of; empty where it is the instance's.
    """

    tables: tuple[FilesTable, ...]
    secret: str = ""
    endpoint: str = ""


@wire_name("TpchSource")
@dataclass(frozen=True)
class TpchSource:
    """TPC-H data of `scale_factor` (as decimal text), followed by a deterministic stream of order transactions."""

    scale_factor: str
    transactions_per_second: int
    seed: int


@wire_name("NexmarkSource")
@dataclass(frozen=True)
class NexmarkSource:
    """Nexmark's people, auctions and bids: event n, at n / `events_per_second` seconds, is a function of the seed and
    n."""

    events_per_second: int
    seed: int


@wire_name("DeltaTable")
@dataclass(frozen=True)
class DeltaTable:
    """An existing Delta table: an absolute path or a URL of an object store.

    `names`: the columns that are taken, all if empty. `columns` None: not pinned yet. `on_gap`: what becomes of the
    table where a version that is needed is gone: `stop`, or `resnapshot`. `primary_key`: names of the columns that no
    two rows have in common; none if empty.
    """

    name: str
    path: str
    names: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    on_gap: str = "stop"
    primary_key: tuple[str, ...] = ()


@wire_name("DeltaSource")
@dataclass(frozen=True)
class DeltaSource:
    """Delta tables that others write; each is followed commit by commit. `secret` and `endpoint`: as of FilesSource."""

    tables: tuple[DeltaTable, ...]
    secret: str = ""
    endpoint: str = ""


@wire_name("PostgresTable")
@dataclass(frozen=True)
class PostgresTable:
    """A table of a PostgreSQL database: its schema and name there.

    `names`: the columns that are taken, all if empty. `columns` None: not pinned yet. `successor`: an earlier table of
    the name in the spec (`successors.py`) may follow the same table of the database beside this one.
    """

    name: str
    schema: str
    table: str
    names: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    successor: bool = False


@wire_name("PostgresSource")
@dataclass(frozen=True)
class PostgresSource:
    """Tables of a PostgreSQL database, followed by logical replication.

    `secret`: the name of the Secret with `username`, `password` or a client certificate (`tls.crt`, `tls.key`), and
    perhaps `ca.crt`. `ssl_mode`: as libpq calls it.
    `on_gap`: what becomes of tables whose changes cannot be read any more: `stop`, or `resnapshot`.
    `all_tables`: all tables of the publication are wanted; an inspection finds those that `tables` does not name. A
    description of an ingestion names them all.
    """

    host: str
    port: int
    database: str
    secret: str
    publication: str
    tables: tuple[PostgresTable, ...]
    ssl_mode: str = "verify-full"
    on_gap: str = "stop"
    max_transaction_bytes: int = 1 << 30
    all_tables: bool = False

    def named_twice(self) -> PostgresTable | None:
        """An entry whose table of the database an earlier entry names, too."""
        earlier: set[tuple[str, str]] = set()
        for each in self.tables:
            if (each.schema, each.table) in earlier:
                return each
            earlier.add((each.schema, each.table))
        return None


def replication_slot(id: GlobalId) -> str:
    """The name of a `postgres:` ingestion's replication slot: small letters, digits and underscores, at most 63."""
    return "tidemark_" + re.sub(r"[^a-z0-9]", "_", id.lower())[:48]


@wire_name("WrittenTable")
@dataclass(frozen=True)
class WrittenTable:
    """A table whose rows clients write.

    `columns`: rows with NULL in one that is not nullable are refused. `primary_key`: names of the columns that no two
    rows have in common; none if empty. `pointers`: where a JSON object has the value of a column, as a JSON pointer by
    the column's name; by default the member of that name. `unknown_fields`: what becomes of members and fields that no
    column has: `refuse`, or `ignore`. `added`: names of columns that an earlier table of the name in the spec had not
    (`successors.py`): the rows of before have NULL in them.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    append_only: bool = False
    pointers: tuple[Option, ...] = ()
    unknown_fields: str = "refuse"
    added: tuple[str, ...] = ()


@wire_name("WrittenSource")
@dataclass(frozen=True)
class WrittenSource:
    """Tables whose rows clients write through the gateway; one call has at most `max_transaction_bytes`."""

    tables: tuple[WrittenTable, ...]
    max_transaction_bytes: int = 1 << 30


INTROSPECTION = "tidemark_introspection"
"""The schema of the operator's knowledge of a namespace, which queries read."""


@wire_name("IntrospectionTable")
@dataclass(frozen=True)
class IntrospectionTable:
    """A relation of INTROSPECTION as a table; `columns`: those that it had when it was pinned."""

    name: str
    columns: tuple[Column, ...]


@wire_name("IntrospectionSource")
@dataclass(frozen=True)
class IntrospectionSource:
    """The operator's knowledge of a namespace: the operator sends the rows of all relations together, at each tick."""

    tables: tuple[IntrospectionTable, ...]


GeneratedSource = TpchSource | NexmarkSource
"""Load generators: their tables are given, and are never edited."""
SourceSpec = (
    FilesSource | GeneratedSource | DeltaSource | PostgresSource | KafkaSource | WrittenSource | IntrospectionSource
)


@wire_name("SourceTable")
@dataclass(frozen=True)
class SourceTable:
    """A table of a source. `schema`, `key_schema`: the texts of the schemas that its records, and their keys, are read
    with, for the description of the source to pin; empty where there is none."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    monotonic: bool = False
    schema: str = ""
    key_schema: str = ""


@wire_name("PublicationTable")
@dataclass(frozen=True)
class PublicationTable:
    """A table that a publication of a PostgreSQL database has: its schema and name there.

    `names`: the columns that can be followed; all if empty. `columns_left_out`: the others, each with the reason.
    `refused`: the reason why the table cannot be followed, as `Reason: text`; empty where it can be.
    """

    schema: str
    table: str
    names: tuple[str, ...] = ()
    columns_left_out: tuple[str, ...] = ()
    refused: str = ""


@wire_name("IngestedTable")
@dataclass(frozen=True)
class IngestedTable:
    """A table and its shard; `id`: the collection that dataflows import.

    `bound_as`: its name in the bindings, where these were adopted: they may have an earlier table of its own name.
    Empty: its own name.
    """

    id: GlobalId
    table: SourceTable
    shard: ShardMetadata
    bound_as: str = ""


@wire_name("IngestionDescription")
@dataclass(frozen=True)
class IngestionDescription:
    """Everything that a replica needs to ingest a DataSource. `tick_ms` divides all its times.

    `removed`: names of tables that the source once had. The bindings may still name them, so no other table has such a
    name.
    """

    id: GlobalId
    name: str
    source: SourceSpec
    tick_ms: int
    remap_id: ShardId
    remap_location: str
    tables: tuple[IngestedTable, ...]
    removed: tuple[str, ...] = ()
