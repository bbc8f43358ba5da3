"""The columns of CREATE TABLE and ALTER TABLE, with their types as a DataSource's spec has them.

    (NAME TYPE [NULL | NOT NULL] [PRIMARY KEY], ..., [[CONSTRAINT NAME] PRIMARY KEY (NAME, ...)])

A type, constraint or default that the spec cannot express is refused by name: rows would be others than the statement
says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER, UNDEFINED_COLUMN, WireError
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK, Token
from tidemark_pgwire.statements.words import Words, refusal

MAX_COLUMNS, MAX_KEY = 256, 16
TOO_MANY_COLUMNS = "54011"
_BOTH = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "int": "INT",
    "integer": "INT",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "date": "DATE",
}
_TYPES: Mapping[str, Mapping[str, str]] = {
    POSTGRES: {
        **_BOTH,
        "bool": "BOOLEAN",
        "int2": "SMALLINT",
        "int4": "INT",
        "int8": "BIGINT",
        "float4": "FLOAT",
        "float8": "DOUBLE",
        "double precision": "DOUBLE",
        "text": "STRING",
        "varchar": "STRING",
        "character varying": "STRING",
        "timestamptz": "TIMESTAMP",
        "timestamp with time zone": "TIMESTAMP",
    },
    SPARK: {
        **_BOTH,
        "tinyint": "TINYINT",
        "byte": "TINYINT",
        "short": "SMALLINT",
        "long": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "STRING",
        "timestamp": "TIMESTAMP",
        "timestamp_ltz": "TIMESTAMP",
    },
}
"""The type of the spec by the type of a dialect."""
_DECIMALS = ("numeric", "decimal", "dec")
_INSTEAD = {
    "timestamp": "timestamptz",
    "timestamp without time zone": "timestamptz",
    "timestamp_ntz": "timestamp",
    "float": "double precision or real",
    "numeric": "numeric(p, s), of at most 38 digits",
    **dict.fromkeys(("char", "character", "bpchar", "name", "uuid", "json", "jsonb", "xml", "bytea"), "text"),
    **dict.fromkeys(("serial", "serial4", "serial8", "smallserial", "bigserial"), "bigint"),
    "binary": "string",
    **dict.fromkeys(("array", "map", "struct", "variant", "interval", "time", "timetz", "money", "inet", "cidr"), ""),
    **dict.fromkeys(("bit", "varbit", "oid", "point", "tsvector", "macaddr", "void"), ""),
}
"""Types that tables here do not have, with those to write instead."""
_CONSTRAINTS = ("UNIQUE", "CHECK", "FOREIGN", "REFERENCES", "EXCLUDE", "LIKE", "DEFAULT", "GENERATED", "COLLATE")


@dataclass
class TableColumns:
    """`columns`: names and types. `key`: the primary key; empty: none. `required`: other columns that are NOT
    NULL."""

    columns: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    required: list[str] = field(default_factory=list)


def table_columns(words: Words) -> TableColumns:
    """The columns and the key, of the words within the parentheses of CREATE TABLE. Raises WireError."""
    found = TableColumns()
    while True:
        named = words.take("CONSTRAINT")
        if named:
            words.name()
        if words.take("PRIMARY", "KEY"):
            _set_key(found, words.names(), words)
        elif named or words.peek().word in _CONSTRAINTS:
            _refuse(f"{words.peek().word or words.peek().text} of a table", words.peek())
        else:
            _column(words, found)
        if not words.take_mark(","):
            break
    words.end()
    _check(found)
    return found


def added_column(words: Words) -> tuple[str, str]:
    """The name and the type of the column of ALTER TABLE ... ADD COLUMN. Raises WireError."""
    found = TableColumns()
    _column(words, found)
    [(name, type)] = found.columns.items()
    if found.required or found.key:
        text = f'column "{name:.80}" cannot be NOT NULL: the rows that are there have no value for it'
        raise WireError(FEATURE_NOT_SUPPORTED, text)
    return name, type


def _column(words: Words, found: TableColumns) -> None:
    at, name = words.peek(), words.name()
    if name.lower() in {each.lower() for each in found.columns}:
        raise WireError("42701", f'column "{name:.80}" specified more than once', position=at.at + 1)
    if len(found.columns) >= MAX_COLUMNS:
        raise WireError(TOO_MANY_COLUMNS, f"tables can have at most {MAX_COLUMNS} columns")
    found.columns[name] = _type(words)
    while words.peek().text not in (",", ""):
        named = words.take("CONSTRAINT")
        if named:
            words.name()
        if words.take("PRIMARY", "KEY"):
            _set_key(found, (name,), words)
        elif words.take("NOT", "NULL"):
            found.required.append(name)
        elif not words.take("NULL"):
            if words.peek().word not in _CONSTRAINTS:
                raise words.syntax_error()
            _refuse(f"{words.peek().word} of a column", words.peek())


def _set_key(found: TableColumns, names: tuple[str, ...], words: Words) -> None:
    if found.key:
        raise WireError("42P16", "multiple primary keys for a table are not allowed", position=words.before().at + 1)
    found.key = names


def _check(found: TableColumns) -> None:
    """The key names columns of the table, whose types can be compared. Columns of the key are NOT NULL in any case."""
    exact = {name.lower(): name for name in found.columns}
    for name in found.key:
        if name.lower() not in exact:
            raise WireError(UNDEFINED_COLUMN, f'column "{name:.80}" named in key does not exist')
    found.key = tuple(exact[name.lower()] for name in found.key)
    if len(set(found.key)) < len(found.key):
        raise WireError("42701", "a column appears twice in the primary key")
    if len(found.key) > MAX_KEY:
        raise WireError(TOO_MANY_COLUMNS, f"a primary key has at most {MAX_KEY} columns")
    for name in found.key:
        if found.columns[name] in ("FLOAT", "DOUBLE"):
            _refuse(f'the primary key\'s column "{name:.80}" of a floating type')
    found.required = [name for name in found.columns if name in found.required and name not in found.key]


def _type(words: Words) -> str:
    """The type of the spec. Raises WireError."""
    token = words.next()
    if token.kind not in ("word", "name"):
        raise words.syntax_error(token)
    kind = token.identifier.lower()
    if token.word == "DOUBLE" and words.take("PRECISION"):
        kind = "double precision"
    elif token.word == "CHARACTER" and words.take("VARYING"):
        kind = "character varying"
    digits = words.inside(_number) if words.peek().text == "(" else None
    if kind in ("timestamp", "time") and words.peek().word in ("WITH", "WITHOUT"):
        with_zone = words.next().word == "WITH"
        words.require("TIME", "ZONE")
        kind += " with time zone" if with_zone else " without time zone"
    if words.peek().text in ("[", "<") or words.peek().word == "ARRAY":
        _refuse(f"a column of type {kind}{words.peek().text}", token)
    if kind in _DECIMALS:
        return _decimal(words, token, digits)
    made = _TYPES[words.dialect].get(kind)
    if made == "TIMESTAMP" and digits == (6,):  # a TIMESTAMP has six digits anyway
        digits = None
    if made is None or digits is not None:
        _refuse_type(kind, made is not None, token)
    return made


def _number(words: Words) -> int:
    token = words.next()
    if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 6):
        raise words.syntax_error(token)
    return int(token.text)


def _decimal(words: Words, token: Token, digits: tuple[int, ...] | None) -> str:
    """A decimal type. Without digits PostgreSQL's has any number of them, and Spark's is DECIMAL(10, 0)."""
    if digits is None:
        if words.dialect == POSTGRES:
            _refuse_type("numeric", False, token)
        digits = (10, 0)
    precision, scale = (*digits, 0)[:2]
    if len(digits) > 2 or not 0 < precision <= 38 or scale > precision:
        text = (
            f"{token.text}({', '.join(map(str, digits))}): it has 1 to 38 digits, and no more of them after the point"
        )
        raise WireError(INVALID_PARAMETER, text, position=token.at + 1)
    return f"DECIMAL({precision},{scale})"


def _refuse_type(kind: str, is_known: bool, token: Token) -> NoReturn:
    """A type that PostgreSQL has, and tables here have not; or one that nobody knows."""
    if is_known:  # the type is known, and has a length or digits
        _refuse(f"{kind} with a length or precision", token, f"Write {kind}.")
    if kind not in _INSTEAD:
        raise WireError("42704", f'type "{kind:.80}" does not exist', position=token.at + 1)
    hint = f"Write {_INSTEAD[kind]}." if _INSTEAD[kind] else ""
    _refuse(f"a column of type {kind}", token, hint)


def _refuse(what: str, token: Token | None = None, hint: str = "") -> NoReturn:
    raise refusal(f"{what} is not supported", token, hint)
