"""What a session asks of itself and of the catalogue: SHOW, pg_catalog, information_schema, session functions.

statement ──► answers it?    no: the gateway answers it
              yes ──► answer: rows, and PostgreSQL's types of them
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidemark_protocol.types import Column

TEXT_OID = 25
_SHOW = re.compile(r"\s*SHOW\s+(?P<name>[\w.]+|TRANSACTION\s+ISOLATION\s+LEVEL|TIME\s+ZONE)\s*;?\s*", re.IGNORECASE)


class CatalogueError(Exception):
    """A statement that the catalogue refuses. `sqlstate`: PostgreSQL's code; the text says why."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@dataclass(frozen=True)
class Relation:
    """A relation that the user may read.

    `namespace`: the DataSource or Dataflow, which is the schema of SQL: relations are `namespace.name`. `short`: the
    name `namespace` alone means it, too. `kind`: `table`, `materialized view` or `view` (an index of a view: its rows
    are kept in memory). `keys`: names of the columns of each unique key. `index_key`: the columns by which rows are
    looked up. `comment`: empty where there is none.
    """

    namespace: str
    name: str
    kind: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    index_key: tuple[str, ...] = ()
    short: bool = False
    comment: str = ""


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
    """`oids`: PostgreSQL's type of each column of `rows`."""

    rows: pa.Table
    oids: Sequence[int]


class Catalogue:
    """Of one session."""

    def __init__(self, session: SessionFacts) -> None:
        self._session = session

    def answers(self, statement: str) -> bool:
        """Whether the statement concerns the session or the catalogue alone, and no relation of a user."""
        return _SHOW.fullmatch(statement) is not None

    async def answer(
        self, statement: str, parameters: Sequence[str | None], relations: Sequence[Relation]
    ) -> CatalogueAnswer:
        """`parameters`: the values of $1, $2 ... as texts. Raises CatalogueError."""
        shown = _SHOW.fullmatch(statement)
        name = "" if shown is None else "_".join(shown["name"].lower().split())
        name = {"time_zone": "timezone"}.get(name, name)
        if name not in self._session.parameters:
            raise CatalogueError("42704", f'unrecognized configuration parameter "{name}"')
        return CatalogueAnswer(pa.table({name: [self._session.parameters[name]]}), [TEXT_OID])
