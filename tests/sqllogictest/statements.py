"""Statements that are no queries, taken apart.

CREATE TABLE t(a INT PRIMARY KEY, b VARCHAR(30) NOT NULL DEFAULT 'x', UNIQUE (a, b))
INSERT INTO t(b) VALUES ('y')           DELETE FROM t WHERE a > 1           UPDATE t SET a = a + 1
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tests.sqllogictest.lexer import Token, divided, enclosed, tokens
from tidemark_protocol.types import Column, SqlType, TypeNotSupported


class NotOurs(Exception):
    """A statement, or a part of one, that this engine has no meaning for."""


@dataclass(frozen=True)
class CreateTable:
    """`keys`: positions that must be distinct together; `defaults`: SQL by position; `query`: where rows come from."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    defaults: tuple[tuple[int, str], ...] = ()
    query: str = ""
    unless_there: bool = False


@dataclass(frozen=True)
class Insert:
    table: str
    columns: tuple[str, ...]
    source: str


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
class Nothing:
    """A statement that changes no result: indexes, transactions, settings."""


@dataclass(frozen=True)
class Select:
    sql: str


Parsed = CreateTable | Insert | Delete | Update | CreateView | Drop | Nothing | Select

_NOTHING = frozenset(
    "BEGIN START COMMIT END SET RESET PRAGMA ANALYZE VACUUM FLUSH REINDEX CHECKPOINT USE GRANT COMMENT EXPLAIN".split()
)
_QUERIES = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("})
# INTEGER, FLOAT and REAL have eight bytes in the engine that most files come from; INT has four, as in Spark.
_TYPES = {
    "INTEGER": "bigint",
    "INT": "int",
    "INT4": "int",
    "MEDIUMINT": "int",
    "SIGNED": "int",
    "INT2": "smallint",
    "SMALLINT": "smallint",
    "TINYINT": "tinyint",
    "BIGINT": "bigint",
    "INT8": "bigint",
    "LONG": "bigint",
    "HUGEINT": "decimal(38,0)",
    "FLOAT": "double",
    "FLOAT8": "double",
    "FLOAT4": "float",
    "REAL": "double",
    "DOUBLE": "double",
    "TEXT": "string",
    "STRING": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "CHARACTER": "string",
    "NVARCHAR": "string",
    "CLOB": "string",
    "BOOL": "boolean",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "DATETIME": "timestamp_ntz",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "TIMESTAMP_LTZ": "timestamp",
    "BLOB": "binary",
    "BYTEA": "binary",
    "BINARY": "binary",
}
_CONSTRAINTS = frozenset(
    "PRIMARY UNIQUE CHECK FOREIGN CONSTRAINT NOT NULL DEFAULT REFERENCES COLLATE KEY GENERATED AUTO_INCREMENT".split()
)


def parse_statement(sql: str) -> Parsed:
    """The statement; raises NotOurs for what has no meaning here."""
    found = tokens(sql)
    first = found[0].upper if found else ""
    if first in _QUERIES:
        return Select(sql)
    if first in _NOTHING:
        return Nothing()
    parsers = {"CREATE": _create, "INSERT": _insert, "DELETE": _delete, "UPDATE": _update, "DROP": _drop}
    if first not in parsers:
        raise NotOurs(f"{first or 'an empty statement'} is no statement of this engine")
    try:
        return parsers[first](sql, found)
    except IndexError:
        raise NotOurs(f"{first}: the statement ends too early") from None


def _create(sql: str, found: list[Token]) -> Parsed:
    words = [t.upper for t in found[:8]]
    at = next((i for i, w in enumerate(words) if w in ("TABLE", "VIEW", "INDEX")), None)
    if at is None:
        raise NotOurs(f"CREATE {words[1]} is no statement of this engine")
    if words[at] == "INDEX":
        return Nothing()
    unless, start = (True, at + 4) if words[at + 1 : at + 4] == ["IF", "NOT", "EXISTS"] else (False, at + 1)
    name, start = _name(found, start)
    if words[at] == "VIEW":
        return _create_view(sql, found, start, name, "REPLACE" in words[:at], unless)
    return _create_table(sql, found, start, name, unless)


def _create_view(sql: str, found: list[Token], at: int, name: str, replaces: bool, unless: bool) -> CreateView:
    columns: tuple[str, ...] = ()
    if found[at].text == "(":
        end = enclosed(found, at)
        columns, at = tuple(part[0].name for part in divided(found[at + 1 : end - 1])), end
    if found[at].upper != "AS":
        raise NotOurs("CREATE VIEW with options")
    return CreateView(name, columns, sql[found[at].end :].strip(), replaces, unless)


def _create_table(sql: str, found: list[Token], at: int, name: str, unless: bool) -> CreateTable:
    columns: list[Column] = []
    keys: list[tuple[int, ...]] = []
    defaults: list[tuple[int, str]] = []
    if at < len(found) and found[at].text == "(":
        end = enclosed(found, at)
        for part in divided(found[at + 1 : end - 1]):
            if part[0].upper in ("PRIMARY", "UNIQUE", "CONSTRAINT", "CHECK", "FOREIGN", "KEY", "INDEX"):
                keys += _table_key(part, columns)
                continue
            column, is_key, default = _column(sql, part)
            keys += [(len(columns),)] if is_key else []
            defaults += [(len(columns), default)] if default else []
            columns.append(column)
        at = end
    while at < len(found) and found[at].upper != "AS":
        at += 1
    query = sql[found[at].end :].strip() if at < len(found) else ""
    if not columns and not query:
        raise NotOurs("CREATE TABLE without columns")
    return CreateTable(name, tuple(columns), tuple(keys), tuple(defaults), query, unless)


def _table_key(part: Sequence[Token], columns: Sequence[Column]) -> list[tuple[int, ...]]:
    """PRIMARY KEY (a, b) as positions."""
    if not any(t.upper in ("PRIMARY", "UNIQUE") for t in part):
        return []
    start = next(i for i, t in enumerate(part) if t.text == "(")
    names = [p[0].name.lower() for p in divided(part[start + 1 : enclosed(part, start) - 1])]
    return [tuple(i for i, c in enumerate(columns) if c.name.lower() in names)]


def _column(sql: str, part: list[Token]) -> tuple[Column, bool, str]:
    """A column, whether it is a key of its own, and its default."""
    end = next((i for i, t in enumerate(part) if i and t.upper in _CONSTRAINTS), len(part))
    words = [t.upper for t in part[end:]]
    pairs = list(itertools.pairwise(words))
    default = sql[part[end + words.index("DEFAULT") + 1].start : part[-1].end] if "DEFAULT" in words else ""
    if default and words.index("DEFAULT") + 2 != len(words):
        default = part[end + words.index("DEFAULT") + 1].text
    nullable = ("NOT", "NULL") not in pairs
    return Column(part[0].name, type_of(part[1:end]), nullable), "PRIMARY" in words or "UNIQUE" in words, default


def type_of(part: Sequence[Token]) -> SqlType:
    """The type that a declaration names; SQLite's columns without one hold text."""
    if not part:
        return SqlType("string")
    word, text = part[0].upper, "".join(t.text for t in part)
    if word in ("DECIMAL", "NUMERIC", "DEC"):
        inside = [t.text for t in part if t.kind == "number"]
        digits = (int(inside[0]), int(inside[1]) if len(inside) > 1 else 0) if inside else (38, 10)
        word, text = "", f"decimal({digits[0]},{digits[1]})"
    if word == "TIMESTAMP" and "TIME" in [t.upper for t in part] and "WITHOUT" not in [t.upper for t in part]:
        word = "TIMESTAMPTZ"
    if any(t.text in ("[", "<") for t in part):
        word = ""
    if "UNSIGNED" in [t.upper for t in part] or word == "UINT":
        word = {"INT": "BIGINT", "INTEGER": "BIGINT"}.get(word, word)
    try:
        return SqlType.parse(_TYPES.get(word, text))
    except TypeNotSupported as error:
        raise NotOurs(str(error)) from None


def _insert(sql: str, found: list[Token]) -> Insert:
    if found[1].upper != "INTO":
        raise NotOurs(f"INSERT {found[1].upper}")
    table, at = _name(found, 2)
    if found[at].upper == "AS":
        at += 2
    columns: tuple[str, ...] = ()
    if found[at].text == "(" and found[at + 1].upper not in ("SELECT", "WITH", "VALUES"):
        end = enclosed(found, at)
        columns, at = tuple(p[0].name for p in divided(found[at + 1 : end - 1])), end
    if found[at].upper not in _QUERIES:
        raise NotOurs(f"INSERT ... {found[at].upper}")
    if any(t.upper in ("RETURNING", "CONFLICT") for t in found):
        raise NotOurs("INSERT with RETURNING or ON CONFLICT")
    return Insert(table, columns, sql[found[at].start :])


def _delete(sql: str, found: list[Token]) -> Delete:
    if found[1].upper != "FROM":
        raise NotOurs(f"DELETE {found[1].upper}")
    table, at = _name(found, 2)
    alias, at = _alias(found, at, table)
    if at == len(found):
        return Delete(table, alias, "true")
    if found[at].upper != "WHERE":
        raise NotOurs(f"DELETE ... {found[at].upper}")
    return Delete(table, alias, sql[found[at].end :].strip())


def _update(sql: str, found: list[Token]) -> Update:
    table, at = _name(found, 1)
    alias, at = _alias(found, at, table)
    if found[at].upper != "SET":
        raise NotOurs(f"UPDATE ... {found[at].upper}")
    depth, where = 0, len(found)
    for i in range(at + 1, len(found)):
        depth += (found[i].text == "(") - (found[i].text == ")")
        if not depth and found[i].upper in ("WHERE", "FROM", "RETURNING"):
            where = i
            break
    if where < len(found) and found[where].upper != "WHERE":
        raise NotOurs(f"UPDATE ... {found[where].upper}")
    assignments = []
    for part in divided(found[at + 1 : where]):
        if len(part) < 3 or part[1].text != "=":
            raise NotOurs("UPDATE with SET of several columns at once")
        assignments.append((part[0].name, sql[part[2].start : part[-1].end]))
    condition = sql[found[where].end :].strip() if where < len(found) else "true"
    return Update(table, alias, tuple(assignments), condition)


def _drop(sql: str, found: list[Token]) -> Parsed:
    words = [t.upper for t in found]
    at = 2 if words[1] in ("MATERIALIZED", "TEMPORARY", "TEMP") else 1
    if words[at] == "INDEX":
        return Nothing()
    if words[at] not in ("TABLE", "VIEW"):
        raise NotOurs(f"DROP {words[at]}")
    if_there = words[at + 1 : at + 3] == ["IF", "EXISTS"]
    names = [_name(part, 0)[0] for part in divided(found[at + 3 if if_there else at + 1 :])]
    return Drop(words[at], tuple(names), if_there)


def _name(found: Sequence[Token], at: int) -> tuple[str, int]:
    """A name of one part, or the last of several, and what follows it."""
    while at + 2 < len(found) and found[at + 1].text == ".":
        at += 2
    return found[at].name, at + 1


def _alias(found: list[Token], at: int, table: str) -> tuple[str, int]:
    if at < len(found) and found[at].upper == "AS":
        return found[at + 1].name, at + 2
    if at < len(found) and found[at].kind in ("word", "quoted") and found[at].upper not in ("SET", "WHERE", "USING"):
        return found[at].name, at + 1
    return table, at
