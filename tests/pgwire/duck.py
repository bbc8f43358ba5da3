"""Answers of the scripted planner and replica by DuckDB, for statements whose rows matter."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import duckdb
import pyarrow as pa

from tests.pgwire.served import Rows, Served
from tidemark_protocol.messages.planning import Diagnostic, Refused
from tidemark_protocol.types import Column, SqlType

_TYPES = {"VARCHAR": "string", "INTEGER": "int", "NULL": "int"}
_ZONE = re.compile(r"(?<='\d{4}-\d\d-\d\d) \+00(?=')")
"""Dates are written as pgjdbc does."""


class _Forgetful(OrderedDict[Any, Any]):
    def get(self, *_: Any) -> None:
        return None


def forget_plans(server: Served) -> None:
    """No plan is kept: each statement is answered by its own rows."""
    server.loop.call(lambda: setattr(server.gateway._statements, "_known", _Forgetful()))


def answered(duck: duckdb.DuckDBPyConnection, sql: str) -> Rows | Refused:
    """The rows of a query; times are in UTC."""
    try:
        found = duck.sql(_ZONE.sub("", sql))
    except duckdb.Error as error:
        name = "SYNTAX" if isinstance(error, duckdb.ParserException) else "UNRESOLVED_RELATION"
        return Refused((Diagnostic(name, str(error)),))
    types = [_TYPES.get(str(kind), str(kind)).lower() for kind in found.types]
    columns = tuple(Column(name, SqlType.parse(t)) for name, t in zip(found.columns, types, strict=True))
    rows = found.to_arrow_table()
    utc = [pa.timestamp("us", "UTC") if pa.types.is_timestamp(each.type) else each.type for each in rows.schema]
    return Rows(columns, rows.cast(pa.schema(list(zip(rows.column_names, utc, strict=True)))))
