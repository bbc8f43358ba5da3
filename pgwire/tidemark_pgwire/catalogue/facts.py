"""The facts that the catalogue answers from, about a session and the user's relations, and the form of its answers."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidemark_pgwire.errors import WireError
from tidemark_protocol.types import Column


class CatalogueError(WireError):
    """A statement that the catalogue refuses."""

    def __reduce__(self) -> tuple[type[CatalogueError], tuple[str, str]]:
        """Tell pickle the arguments by which the process that asked makes the error anew."""
        return CatalogueError, (self.sqlstate, str(self))


@dataclass(frozen=True)
class CatalogueRelation:
    """A relation that the user may see: they may read its rows, or may list the objects of the namespace.

    `namespace`: the DataSource or Dataflow, which is the schema of SQL: relations are `namespace.name`. `short`: the
    name `namespace` alone means it, too. `kind`: `table`, `materialized view` or `view` (an index of a view: its rows
    are kept in memory). `keys`: names of the columns of each unique key. `index_key`: the columns by which rows are
    looked up.
    """

    namespace: str
    name: str
    kind: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    index_key: tuple[str, ...] = ()
    short: bool = False


@dataclass(frozen=True)
class SessionFacts:
    """`database`: the Kubernetes namespace. `parameters`: settings by name in lower case, as they are at each moment.
    `address`: the client's, HOST:PORT."""

    user: str
    database: str
    backend_pid: int
    address: str
    parameters: MutableMapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CatalogueAnswer:
    """`oids`: PostgreSQL's type of each column of `rows`.

    The columns of `rows` have the Arrow type of what they hold: integers (an oid is an int64), booleans, lists. A type
    that Arrow lacks (`int2vector`, `regclass`, `"char"`, `name`) is a string, as PostgreSQL prints it.
    """

    rows: pa.Table
    oids: Sequence[int]


@dataclass(frozen=True)
class AnswerDescription:
    """The columns and parameters of an answer, before its parameters have values. Types are PostgreSQL's oids."""

    parameters: Sequence[int]
    names: Sequence[str]
    oids: Sequence[int]
