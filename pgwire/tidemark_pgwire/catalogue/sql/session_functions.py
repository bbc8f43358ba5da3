"""Functions about the session: their values are known before DuckDB is asked, which gets them as literals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from sqlglot import exp

from tidemark_pgwire.catalogue.contents.entries import parts_of_name
from tidemark_pgwire.catalogue.facts import CatalogueError, SessionFacts
from tidemark_pgwire.catalogue.settings import set_setting, setting, settings_of

_STARTED = datetime.now(UTC)
Value = str | int | bool | None | list[str]
Call = Callable[[SessionFacts, Sequence[Value]], Value]


def _schemas(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    return ["pg_catalog", "public"] if arguments[0] in (True, "t", "true", "on") else ["public"]


def _current_setting(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    name = str(arguments[0])
    if len(arguments) > 1 and arguments[1] in (True, "t", "true") and name.lower() not in settings_of(session):
        return None
    return setting(session, name)


def _set_config(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    name, value = str(arguments[0]), "" if arguments[1] is None else str(arguments[1])
    set_setting(session, name, value)
    return value


def _parse_ident(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    names = parts_of_name(str(arguments[0]))
    if not names:
        raise CatalogueError("22023", f'string is not a valid identifier: "{str(arguments[0])[:63]}"')
    return names


def _address(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    return session.address.rpartition(":")[0].strip("[]") or None


def _port(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    port = session.address.rpartition(":")[2]
    return int(port) if port.isdigit() else None


def _now(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    return datetime.now(UTC).isoformat()


def _version(session: SessionFacts, arguments: Sequence[Value]) -> Value:
    return f"PostgreSQL {setting(session, 'server_version').split(' ')[0]} (Tidemark)"


SESSION_FUNCTIONS: Mapping[str, tuple[str, tuple[int, ...], Call]] = {
    "clock_timestamp": ("timestamptz", (0,), _now),
    "current_database": ("name", (0,), lambda s, a: s.database),
    "current_schema": ("name", (0,), lambda s, a: "public"),
    "current_schemas": ("_name", (1,), _schemas),
    "current_setting": ("text", (1, 2), _current_setting),
    "current_user": ("name", (0,), lambda s, a: s.user),
    "inet_client_addr": ("inet", (0,), _address),
    "inet_client_port": ("int4", (0,), _port),
    "now": ("timestamptz", (0,), _now),
    "parse_ident": ("_text", (1,), _parse_ident),
    "pg_backend_pid": ("int4", (0,), lambda s, a: s.backend_pid),
    "pg_conf_load_time": ("timestamptz", (0,), lambda s, a: _STARTED.isoformat()),
    "pg_postmaster_start_time": ("timestamptz", (0,), lambda s, a: _STARTED.isoformat()),
    "session_user": ("name", (0,), lambda s, a: s.user),
    "set_config": ("text", (3,), _set_config),
    "statement_timestamp": ("timestamptz", (0,), _now),
    "transaction_timestamp": ("timestamptz", (0,), _now),
    "txid_current": ("int8", (0,), lambda s, a: time.time_ns() // 1_000_000),
    "version": ("text", (0,), _version),
}
"""The type of the result, how many arguments there may be, and what computes it."""


def literal_value(node: exp.Expression) -> Value:
    """Raises CatalogueError: it is no literal."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return str(node.this)
    raise CatalogueError("0A000", "a function about the session takes literals and parameters alone")


def call(name: str, session: SessionFacts, arguments: Sequence[exp.Expression]) -> Value:
    """Raises CatalogueError."""
    _, arities, function = SESSION_FUNCTIONS[name]
    if len(arguments) not in arities:
        raise CatalogueError("42883", f"function {name} with {len(arguments)} arguments does not exist")
    return function(session, [literal_value(one) for one in arguments])
