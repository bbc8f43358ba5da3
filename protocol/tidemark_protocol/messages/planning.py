"""What the operator asks the planner, and what it gets back.

PlanRequest      ──► Planned          objects, imports and exports of a dataflow
PlanQueryRequest ──► PlannedPeek      a query that reads what is there already
                 ──► PlannedOneShot   any other: a dataflow that is run once, and a finishing
either           ──► Refused          diagnostics: what, where in the text, and which name is missing
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
"""What a call has beyond its plan's time: for its turn, for the end of a process that took too long, for the answer."""
MAX_SQL_CHARACTERS = 128 * 1024
"""Of a text that is planned: a longer one takes too long to analyse, and to look for names in."""


@wire_name("SharedIndex")
@dataclass(frozen=True)
class SharedIndex:
    """An arrangement by the columns `key` of all of a relation's rows, which plans of its instance may import as `id`.

    `on`: the collection that it is of; indexes on one collection are kept by one dataflow, and move together.
    """

    id: GlobalId
    on: GlobalId
    key: tuple[int, ...]


@wire_name("Relation")
@dataclass(frozen=True)
class Relation:
    """A name that SQL may use: table `name` of `parent` (a DataSource or a Dataflow).

    `shard` None: the export is an index; only peeks read it where `indexes` is empty (it is of another instance).
    `short`: `parent` alone also names it. `index_key`: by which a peek can look rows up.
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


@wire_name("Catalogue")
@dataclass(frozen=True)
class Catalogue:
    """All that names mean in one namespace and instance."""

    relations: tuple[Relation, ...]


@wire_name("ViewRequest")
@dataclass(frozen=True)
class ViewRequest:
    name: str
    sql: str


@wire_name("TaskRequest")
@dataclass(frozen=True)
class TaskRequest:
    """Of a continual task: the relation `watch` (`a.b` or `a`), and the view whose rows are taken out of the output.

    `columns`: the output's, needed where the view that is exported reads the output itself.
    """

    watch: str
    delete: str | None = None
    columns: tuple[Column, ...] | None = None


@wire_name("ExportRequest")
@dataclass(frozen=True)
class ExportRequest:
    """An export `name` of view `view`; `key`: column names of an index, None for the default. `task`: of a continual
    task, which is its Dataflow's only export."""

    name: str
    kind: str
    view: str
    key: tuple[str, ...] | None = None
    task: TaskRequest | None = None


@wire_name("PlanRequest")
@dataclass(frozen=True)
class PlanRequest:
    """Views in order (a later one may read an earlier one by its name), then exports of them.

    Object ids in the answer are `id_prefix` + the view's or object's name.
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
    """The import that a continual task watches, and the name under which its objects read its output, if they do."""

    watches: GlobalId
    own: GlobalId | None = None


@wire_name("PlannedExport")
@dataclass(frozen=True)
class PlannedExport:
    """`on`: the object exported; `key`: positions of the index key (also kept for a materialized view: a unique key
    of the rows when one is known, else all columns)."""

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
    """`references` are the catalogue ids that the plan reads. `explain` is the tree for people."""

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
    """Why SQL was refused. `code`: SYNTAX, UNRESOLVED_RELATION, UNRESOLVED_COLUMN, AMBIGUOUS, UNSUPPORTED,
    FORBIDDEN_FUNCTION, TYPE, DUPLICATE_NAME, RESERVED_NAME, TOO_LARGE, TIMEOUT, INTERNAL.

    `line` and `column` count from 1, 0 where unknown; `word` is the offending word; `relation` holds the parts of
    a missing name (UNRESOLVED_RELATION), so that the operator can wait for it.
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
    diagnostics: tuple[Diagnostic, ...]


@wire_name("Finishing")
@dataclass(frozen=True)
class Finishing:
    """What is done to the rows of a peek at the end: order (over the result's columns), limit, offset, and how many
    of the leading columns are shown (the rest were only there to order by)."""

    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    shown: int | None = None


@wire_name("PlanQueryRequest")
@dataclass(frozen=True)
class PlanQueryRequest:
    """Any SELECT over the catalogue, to be read once. Object ids in the answer begin with `id_prefix`."""

    sql: str
    catalogue: Catalogue
    id_prefix: str
    dialect: str = "spark"
    settings: Settings = Settings()


@wire_name("PlannedPeek")
@dataclass(frozen=True)
class PlannedPeek:
    """A query that needs no operators reads one export or table. `mfp` runs over the relation's columns; `literals`:
    values of the index key that rows must equal, or None."""

    relation: GlobalId
    mfp: MapFilterProject
    finishing: Finishing
    columns: tuple[Column, ...]
    literals: tuple[tuple[Literal, ...], ...] | None = None


@wire_name("PlannedOneShot")
@dataclass(frozen=True)
class PlannedOneShot:
    """`planned` is a dataflow of one export, an index of the query's rows; `finishing` is done to what it holds.

    `columns` are the result's: the export's, without those that are only ordered by, under the query's own names,
    which need not be distinct.
    """

    planned: Planned
    finishing: Finishing
    columns: tuple[Column, ...]
