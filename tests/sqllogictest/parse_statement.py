"""Statements that are not queries, parsed token by token, without Spark.

Their parts (a query, a condition, values) stay text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from tests.sqllogictest.column_types import type_of
from tests.sqllogictest.lexer import Token, divided, enclosed, tokens
from tests.sqllogictest.statements import (
    Alter,
    CreateIndex,
    CreateTable,
    CreateView,
    Delete,
    Drop,
    Insert,
    Nothing,
    NotOurs,
    Parsed,
    Select,
    Transaction,
    Update,
)
from tidemark_protocol.types import Column

CHANGES = frozenset("CREATE INSERT REPLACE DELETE TRUNCATE UPDATE DROP ALTER".split())
_NOTHING = frozenset(
    "SET RESET PRAGMA ANALYZE VACUUM FLUSH REINDEX CHECKPOINT USE GRANT REVOKE COMMENT EXPLAIN SHOW CALL WAIT "
    "LOAD".split()
)
_TRANSACTIONS = {
    "BEGIN": "begin",
    "START": "begin",
    "COMMIT": "commit",
    "END": "commit",
    "ROLLBACK": "rollback",
    "ABORT": "rollback",
}
_QUERIES = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("})
# Schemas in which names without one are looked up.
_COMMON = frozenset("public main memory temp pg_temp test default".split())
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
    if first in _TRANSACTIONS:
        if "TO" in [t.upper for t in found]:
            raise NotOurs("ROLLBACK TO a savepoint")
        return Transaction(_TRANSACTIONS[first])
    parsers = {
        "CREATE": _create,
        "INSERT": _insert,
        "REPLACE": _insert,
        "DELETE": _delete,
        "TRUNCATE": _truncate,
        "UPDATE": _update,
        "DROP": _drop,
        "ALTER": _alter,
    }
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
    unless, start = (True, at + 4) if words[at + 1 : at + 4] == ["IF", "NOT", "EXISTS"] else (False, at + 1)
    if words[at] == "INDEX":
        return _create_index(found, start, words[1] == "UNIQUE", unless)
    if found[start + 1].text == "." and found[start].name.lower() not in _COMMON:
        raise NotOurs("a name in a schema of its own")
    name, start = _name(found, start)
    if words[at] == "VIEW":
        return _create_view(sql, found, start, name, "REPLACE" in words[:at], unless)
    return replace(_create_table(sql, found, start, name, unless), replaces="REPLACE" in words[:at])


def _create_index(found: list[Token], at: int, unique: bool, unless: bool) -> Parsed:
    if found[at].upper == "ON":  # without a name
        return Nothing()
    name, at = _name(found, at)
    if found[at].upper != "ON":
        raise NotOurs(f"CREATE INDEX ... {found[at].upper}")
    table, at = _name(found, at + 1)
    at = next((i for i in range(at, len(found)) if found[i].text == "("), len(found))
    columns = list(divided(found[at + 1 : enclosed(found, at) - 1])) if at < len(found) else []
    plain = all(p[0].kind in ("word", "quoted") and all(t.upper in ("ASC", "DESC") for t in p[1:]) for p in columns)
    if unique and not (plain and columns and "WHERE" not in [t.upper for t in found]):
        raise NotOurs("CREATE UNIQUE INDEX on expressions or on some rows")
    return CreateIndex(name, table, tuple(p[0].name for p in columns) if unique else (), unless)


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
            if part[0].upper in (
                "PRIMARY",
                "UNIQUE",
                "CONSTRAINT",
                "CHECK",
                "FOREIGN",
                "KEY",
                "INDEX",
                "FAMILY",
                "INVERTED",
            ):
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


def _insert(sql: str, found: list[Token]) -> Insert:
    words = [t.upper for t in found[:4]]
    clash = "replace" if words[0] == "REPLACE" else ""
    if words[1] == "OR" and words[2] in ("REPLACE", "IGNORE"):
        clash, words = words[2].lower(), [words[0], *words[3:]]
    if words[1] != "INTO":
        raise NotOurs(f"INSERT {found[1].upper}")
    if [t.upper for t in found[-4:]] == ["ON", "CONFLICT", "DO", "NOTHING"]:
        clash, sql, found = "ignore", sql[: found[-4].start].rstrip(), found[:-4]
    table, at = _name(found, 4 if found[1].upper == "OR" else 2)
    if found[at].upper == "AS":
        at += 2
    columns: tuple[str, ...] = ()
    if found[at].upper == "DEFAULT" and found[at + 1].upper == "VALUES":
        return Insert(table, (), "VALUES (DEFAULT)", clash)
    if found[at].text == "(" and found[at + 1].upper not in ("SELECT", "WITH", "VALUES", "("):
        end = enclosed(found, at)
        columns, at = tuple(p[0].name for p in divided(found[at + 1 : end - 1])), end
    if found[at].upper not in _QUERIES:
        raise NotOurs(f"INSERT ... {found[at].upper}")
    if any(t.upper in ("RETURNING", "CONFLICT") for t in found):
        raise NotOurs("INSERT with RETURNING or ON CONFLICT")
    return Insert(table, columns, sql[found[at].start :], clash)


def _truncate(sql: str, found: list[Token]) -> Delete:
    table, at = _name(found, 2 if found[1].upper == "TABLE" else 1)
    if at != len(found):
        raise NotOurs("TRUNCATE with options")
    return Delete(table, table, "true")


def _alter(sql: str, found: list[Token]) -> Alter:
    """ALTER TABLE t ADD [COLUMN] c INT DEFAULT 1, DROP [COLUMN] c, RENAME [COLUMN] c TO d, RENAME TO u."""
    if found[1].upper not in ("TABLE", "VIEW"):
        raise NotOurs(f"ALTER {found[1].upper}")
    table, at = _name(found, 2)
    words = [t.upper for t in found[at:]]
    own = 2 if words[1] == "COLUMN" else 1
    if words[:2] == ["RENAME", "TO"]:
        return Alter(table, "rename table", to=_name(found, at + 2)[0])
    if words[0] == "RENAME" and words[own + 1] == "TO":
        return Alter(table, "rename", found[at + own].name, found[at + own + 2].name)
    if words[0] == "DROP" and words[own] not in ("CONSTRAINT", "IF", "PRIMARY") and len(words) == own + 1:
        return Alter(table, "drop", found[at + own].name)
    if words[0] == "ADD" and words[own] not in (*_CONSTRAINTS, "IF", "INDEX") and "," not in words:
        column, is_key, default = _column(sql, found[at + own :])
        if not is_key and column.nullable:
            return Alter(table, "add", column.name, added=column, default=default)
    raise NotOurs(f"ALTER TABLE ... {' '.join(words[:2])}")


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
    if words[at] not in ("TABLE", "VIEW", "INDEX"):
        raise NotOurs(f"DROP {words[at]}")
    if_there = words[at + 1 : at + 3] == ["IF", "EXISTS"]
    rest = found[at + 3 if if_there else at + 1 :]
    if rest and rest[-1].upper in ("CASCADE", "RESTRICT"):
        rest = rest[:-1]
    if words[at] == "INDEX" and any(t.upper in ("ON", "@") for t in rest):  # MySQL's and CockroachDB's
        return Nothing()
    names = [_name(part, 0)[0] for part in divided(rest)]
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
