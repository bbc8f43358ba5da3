"""Requests of the operator to the planner, and the answers.

PlanRequest      ──► Planned          objects, imports and exports of a dataflow
PlanQueryRequest ──► PlannedPeek      a query that reads one collection and needs no operators
                 ──► PlannedOneShot   any other query: a dataflow that runs once, and a finishing
either           ──► Refused          diagnostics: the reason, the position in the text, and a missing name
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import BuildDesc, IndexImport, Settings, ShardMetadata, SourceImport
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import MapFilterProject, OrderKey
from tidemark_protocol.types import Column
from tidemark_protocol.vocabulary import wire_name

GRACE_SECONDS = 5.0
"""The deadline of a call is the time of its plan plus these seconds: for queueing, for ending a worker, for the
answer."""
MAX_SQL_CHARACTERS = 128 * 1024
"""The longest SQL text: a longer one takes too long to analyse."""


@wire_name("SharedIndex")
@dataclass(frozen=True)
class SharedIndex:
    """An arrangement of a relation by the columns `key`, which plans of its instance may import as `id`.

    `on`: the indexed collection. All indexes on one collection are kept by one dataflow and have the same frontiers.
    """

    id: GlobalId
    on: GlobalId
    key: tuple[int, ...]


@wire_name("Relation")
@dataclass(frozen=True)
class Relation:
    """A name that SQL may read: table `name` of `parent` (a DataSource or a Dataflow).

    `shard` None: the export is an index; if `indexes` is empty, it belongs to another instance, and only peeks read it.
    `short`: the name `parent` alone also means it. `index_key`: the key by which a peek can look rows up. `rows`: how
    many it has, roughly; None: unknown.
    """

    parent: str
    name: str
    id: GlobalId
    columns: tuple[Column, ...]
    shard: ShardMetadata | None = None
    keys: tuple[tuple[int, ...], ...] = ()
    monotonic: bool = False
    short: bool = False
    index_key: tuple[int, ...] | None = None
    indexes: tuple[SharedIndex, ...] = ()
    rows: int | None = None


@wire_name("Catalogue")
@dataclass(frozen=True)
class Catalogue:
    """All relations that names can mean in one namespace and instance."""

    relations: tuple[Relation, ...]


@wire_name("ViewRequest")
@dataclass(frozen=True)
class ViewRequest:
    """A view: its name and its query."""

    name: str
    sql: str


@wire_name("TaskRequest")
@dataclass(frozen=True)
class TaskRequest:
    """A continual task: the watched relation (`a.b` or `a`), and the view whose rows are removed from the output
    (`delete`).

    `columns`: those of the output; needed where the exported view reads the output itself.
    """

    watch: str
    delete: str | None = None
    columns: tuple[Column, ...] | None = None


@wire_name("ExportRequest")
@dataclass(frozen=True)
class ExportRequest:
    """An export `name` of view `view`. `key`: the column names of an index key; None: the default key.

    `task`: that of a continual task, which is the only export of its Dataflow.
    """

    name: str
    kind: str
    view: str
    key: tuple[str, ...] | None = None
    task: TaskRequest | None = None


@wire_name("PlanRequest")
@dataclass(frozen=True)
class PlanRequest:
    """Views in order (a later one may read an earlier one by its name), then exports of them.

    The ids of objects in the answer are `id_prefix` + the name of the view or object.
    """

    dataflow: str
    views: tuple[ViewRequest, ...]
    exports: tuple[ExportRequest, ...]
    catalogue: Catalogue
    id_prefix: str
    dialect: str = "spark"
    settings: Settings = Settings()


@wire_name("PlannedTask")
@dataclass(frozen=True)
class PlannedTask:
    """The import that a continual task watches, and the id under which objects read its output, if they do."""

    watches: GlobalId
    own: GlobalId | None = None


@wire_name("PlannedExport")
@dataclass(frozen=True)
class PlannedExport:
    """An export of object `on`. `key`: positions of the columns of the index key.

    A materialized view has a key too: a unique key of its rows where one is known, else all columns.
    """

    name: str
    kind: str
    on: GlobalId
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    unique: bool = False
    monotonic: bool = False
    task: PlannedTask | None = None


@wire_name("Planned")
@dataclass(frozen=True)
class Planned:
    """`references`: the catalogue ids that the plan reads. `explain`: the printed plan."""

    source_imports: tuple[SourceImport, ...]
    objects: tuple[BuildDesc, ...]
    exports: tuple[PlannedExport, ...]
    references: tuple[GlobalId, ...]
    explain: str
    settings: Settings = Settings()
    index_imports: tuple[IndexImport, ...] = ()


@wire_name("Diagnostic")
@dataclass(frozen=True)
class Diagnostic:
    """The reason why SQL was refused. `code`: SYNTAX, UNRESOLVED_RELATION, UNRESOLVED_COLUMN, AMBIGUOUS, UNSUPPORTED,
    FORBIDDEN_FUNCTION, TYPE, DUPLICATE_NAME, RESERVED_NAME, TOO_LARGE, TIMEOUT, INTERNAL.

    `line` and `column` count from 1; 0: unknown. `word`: the offending word. `relation`: the parts of a missing name
    (UNRESOLVED_RELATION), so that the operator can wait for it.
    """

    code: str
    message: str
    view: str = ""
    line: int = 0
    column: int = 0
    word: str = ""
    relation: tuple[str, ...] = ()


@wire_name("Refused")
@dataclass(frozen=True)
class Refused:
    """The SQL is refused, for these reasons."""

    diagnostics: tuple[Diagnostic, ...]


@wire_name("Finishing")
@dataclass(frozen=True)
class Finishing:
    """The last steps on the rows of a peek: order (over the columns of the result), limit, offset, and the number of
    leading columns that are shown (None: all).
    """

    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    shown: int | None = None


@wire_name("PlanQueryRequest")
@dataclass(frozen=True)
class PlanQueryRequest:
    """A SELECT over the catalogue that is read once. Ids of objects in the answer begin with `id_prefix`."""

    sql: str
    catalogue: Catalogue
    id_prefix: str
    dialect: str = "spark"
    settings: Settings = Settings()


@wire_name("PlannedPeek")
@dataclass(frozen=True)
class PlannedPeek:
    """A query that reads one relation and needs no operators. `mfp` runs over the columns of the relation.

    `literals`: the values that the index key must equal; None: any.
    """

    relation: GlobalId
    mfp: MapFilterProject
    finishing: Finishing
    columns: tuple[Column, ...]
    literals: tuple[tuple[Literal, ...], ...] | None = None


@wire_name("PlannedOneShot")
@dataclass(frozen=True)
class PlannedOneShot:
    """`planned`: a dataflow with one export, an index of the rows of the query; `finishing` is applied to them.

    `columns`: those of the result under the names of the query, which need not be distinct.
    """

    planned: Planned
    finishing: Finishing
    columns: tuple[Column, ...]
