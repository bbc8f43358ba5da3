"""Statements that are no queries, as the runner knows them (parse_statement.py reads them).

CREATE TABLE t(a INT PRIMARY KEY, b VARCHAR(30) NOT NULL DEFAULT 'x', UNIQUE (a, b))
INSERT INTO t(b) VALUES ('y')           DELETE FROM t WHERE a > 1           UPDATE t SET a = a + 1
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.types import Column


class NotOurs(Exception):
    """A statement, or a part of one, that this engine has no meaning for."""


class Violation(Exception):
    """A statement that is wrong: a key that is there already, a table that is not."""


@dataclass(frozen=True)
class CreateTable:
    """`keys`: positions that must be distinct together; `defaults`: SQL by position; `query`: where rows come from."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    defaults: tuple[tuple[int, str], ...] = ()
    query: str = ""
    unless_there: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class Insert:
    """`clash`: what becomes of a row whose key is there already: an error, or `replace`, or `ignore`."""

    table: str
    columns: tuple[str, ...]
    source: str
    clash: str = ""


@dataclass(frozen=True)
class Delete:
    table: str
    alias: str
    condition: str


@dataclass(frozen=True)
class Update:
    table: str
    alias: str
    assignments: tuple[tuple[str, str], ...]
    condition: str


@dataclass(frozen=True)
class CreateView:
    name: str
    columns: tuple[str, ...]
    query: str
    replaces: bool = False
    unless_there: bool = False


@dataclass(frozen=True)
class Drop:
    kind: str
    names: tuple[str, ...]
    if_there: bool


@dataclass(frozen=True)
class CreateIndex:
    """`key`: its columns, if they are to be distinct; indexes change no result but by that."""

    name: str
    table: str
    key: tuple[str, ...] = ()
    unless_there: bool = False


@dataclass(frozen=True)
class Alter:
    """`does`: add, drop, rename (a column), or rename table; what it adds, and its default."""

    table: str
    does: str
    column: str = ""
    to: str = ""
    added: Column | None = None
    default: str = ""


@dataclass(frozen=True)
class Nothing:
    """A statement that changes no result: indexes, transactions, settings."""


@dataclass(frozen=True)
class Transaction:
    """`begin`, `commit` or `rollback`."""

    does: str


@dataclass(frozen=True)
class Select:
    sql: str


Parsed = (
    CreateTable | CreateIndex | Insert | Delete | Update | CreateView | Drop | Alter | Nothing | Transaction | Select
)
