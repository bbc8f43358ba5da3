"""Values that statements compute: literals here, all else by Spark as a batch over the present tables.

INSERT INTO t VALUES (1, 'a')      literals of simple types: no job
INSERT INTO t SELECT ... FROM u    SELECT CAST(c0 AS int), CAST(c1 AS string) FROM (SELECT ... FROM u) AS s(c0, c1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException

from tests.sqllogictest.lexer import Token, divided, enclosed, tokens
from tests.sqllogictest.statements import NotOurs
from tidemark_protocol.types import Column, SqlType, TypeNotSupported
from tidemark_replica.values.arrow_types import arrow_type, sql_type

Row = tuple[Any, ...]
# Tables by name as (columns, rows), views as text.
Contents = Mapping[str, Any]
_ROW = "row_of_the_runner"


class DataError(Exception):
    """A statement that raises in Spark: its data are wrong."""


class Evaluator:
    """Spark as a batch, in a session of its own."""

    def __init__(self, spark: Any) -> None:
        self._session = spark.newSession()
        settings = {
            "spark.sql.ansi.enabled": "true",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.optimizer.excludedRules": "",
        }
        for key, value in settings.items():
            self._session.conf.set(key, value)

    def rows(self, source: str, columns: Sequence[Column], contents: Contents) -> list[Row]:
        """The rows of a VALUES or a query, as values of these columns' types."""
        literal = literal_rows(source, columns)
        return literal if literal is not None else self.query(source, columns, contents)[1]

    def query(self, sql: str, columns: Sequence[Column], contents: Contents) -> tuple[tuple[Column, ...], list[Row]]:
        """Rows, cast to `columns` where there are any, else the columns that they have."""
        if columns:
            names = ", ".join(f"c{i}" for i in range(len(columns)))
            casts = ", ".join(f"CAST(c{i} AS {c.type}) AS c{i}" for i, c in enumerate(columns))
            sql = f"SELECT {casts} FROM ({sql}) AS s({names})"
        found = self._run(sql, contents)
        try:
            made = tuple(Column(f.name, sql_type(f.type)) for f in found.schema)
        except TypeNotSupported as error:
            raise NotOurs(str(error)) from None
        return tuple(columns) or made, _rows(found)

    def chosen(
        self, name: str, columns: Sequence[Column], rows: Sequence[Row], alias: str, condition: str, contents: Contents
    ) -> list[Row]:
        """The rows for which the condition is true."""
        if condition == "true":
            return list(rows)
        return self.updated(name, columns, rows, alias, condition, {}, contents)[0]

    def updated(
        self,
        name: str,
        columns: Sequence[Column],
        rows: Sequence[Row],
        alias: str,
        condition: str,
        assigned: Mapping[int, str],
        contents: Contents,
    ) -> tuple[list[Row], list[Row]]:
        """The rows for which the condition is true, and what they become."""
        values = "".join(f", CAST({text} AS {columns[i].type}) AS n{i}" for i, text in assigned.items())
        numbered = (*columns, Column(_ROW, SqlType("bigint")))
        there = [(*row, position) for position, row in enumerate(rows)]
        sql = f"SELECT {_ROW}{values} FROM `{name}` AS `{alias}` WHERE {condition}"
        found = _rows(self._run(sql, {**contents, name: (numbered, there)}))
        gone = [rows[row[0]] for row in found]
        made = []
        for position, *fresh in found:
            row = list(rows[position])
            for i, value in zip(assigned, fresh, strict=True):
                row[i] = value
            made.append(tuple(row))
        return gone, made

    def _run(self, sql: str, contents: Contents) -> pa.Table:
        declared = []
        try:
            for name, what in contents.items():
                if not isinstance(what, str):
                    self._session.createDataFrame(_table(*what)).createOrReplaceTempView(f"`{name}`")
                    declared.append(name)
            for name, what in contents.items():
                if isinstance(what, str):
                    self._session.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {what}")
                    declared.append(name)
            return self._session.sql(sql).toArrow()
        except (AnalysisException, ParseException) as error:
            raise NotOurs(str(error).strip().split("\n")[0]) from None
        except PySparkException as error:
            raise DataError(str(error).strip().split("\n")[0]) from None
        finally:
            for name in declared:
                self._session.catalog.dropTempView(name)


def literal_rows(source: str, columns: Sequence[Column]) -> list[Row] | None:
    """The rows of VALUES (...), (...), if all are literals that their columns take as they are."""
    found = tokens(source)
    if not found or found[0].upper != "VALUES":
        return None
    rows = []
    for part in divided(found[1:]):
        if not part or part[0].text != "(" or enclosed(part, 0) != len(part):
            return None
        values = [_literal(v, c) for v, c in zip(divided(part[1:-1]), columns, strict=False)]
        if len(values) != len(columns) or len(list(divided(part[1:-1]))) != len(columns) or _Other in values:
            return None
        rows.append(tuple(values))
    return rows


class _Other:
    """No literal that could be taken as it is."""


def _literal(part: Sequence[Token], column: Column) -> Any:
    sign = -1 if len(part) == 2 and part[0].text == "-" else 1
    if len(part) - (part[0].text in "+-") != 1:
        return _Other
    token, type = part[-1], column.type
    if token.upper == "NULL":
        return None
    if token.kind == "number":
        return _number(sign, token.text, type)
    if token.kind == "string" and type.name == "string" and "'" not in token.text[1:-1] and "\\" not in token.text:
        return token.text[1:-1]
    if token.upper in ("TRUE", "FALSE") and type.name == "boolean":
        return token.upper == "TRUE"
    return _Other


def _number(sign: int, text: str, type: SqlType) -> Any:
    if type.name == "double":
        return sign * float(text)
    if type.name in ("int", "bigint") and text.isdigit() and int(text) < 1 << 31:
        return sign * int(text)
    if type.is_decimal and text.replace(".", "").isdigit():
        value = Decimal(text)
        whole, scale = len(str(int(value))), -int(value.as_tuple().exponent)
        if scale <= type.scale and whole <= type.precision - type.scale:
            return (sign * value).quantize(Decimal(1).scaleb(-type.scale))
    return _Other


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> pa.Table:
    arrays = [pa.array([row[i] for row in rows], arrow_type(c.type)) for i, c in enumerate(columns)]
    return pa.table(arrays, schema=pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns]))


def _rows(found: pa.Table) -> list[Row]:
    columns = [
        list(map(_frozen, c.to_pylist())) if pa.types.is_nested(c.type) else c.to_pylist() for c in found.columns
    ]
    return list(zip(*columns, strict=True))


def _frozen(value: Any) -> Any:
    """Arrays and structs as tuples, so that rows can be counted."""
    if isinstance(value, dict):
        return tuple(map(_frozen, value.values()))
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
