"""The kind of an expression's values: engines divide integers as integers, where Spark's `/` gives a fraction.

A column is what all columns of its name are, in tables and among what the text itself names. This is before Spark's
analysis, so it may err where names hide others: typed_check.py looks again at the types that Spark finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlglot import exp

from tidemark_protocol.types import Column, SqlType

Kind = Literal["integer", "decimal", "double", "boolean", "text", "bytes", "date", "timestamp", "timestamptz"] | None
"""`timestamp`: without a zone."""
TIMES: tuple[Kind, ...] = ("timestamp", "timestamptz")
FRACTIONS: tuple[Kind, ...] = ("decimal", "double")
_INTEGERS = (exp.Count, exp.Length, exp.IntDiv, exp.RowNumber, exp.Rank, exp.DenseRank, exp.StrPosition, exp.Ntile)
_DOUBLES = (exp.Avg, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow, exp.Stddev, exp.Variance, exp.PercentRank, exp.CumeDist)
_TEXTS = (exp.Lower, exp.Upper, exp.Substring, exp.Trim, exp.Replace, exp.Concat, exp.DPipe, exp.GroupConcat)
_SAME = (
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.Lag,
    exp.Lead,
    exp.Round,
    exp.Paren,
    exp.Neg,
    exp.Sum,
    exp.Min,
    exp.Max,
    exp.Abs,
    exp.Distinct,
    exp.Window,
    exp.Filter,
    exp.Alias,
)
_PLAIN = (exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren, exp.Distinct)
_EITHER = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)
_READS_ROWS = ("expressions", "where", "joins", "group")
_DEEPEST = 40
Tables = Mapping[str, Sequence[Column]]
"""The columns of the tables that a text can mean, by name."""


class Numbers:
    """The columns that a text can mean. `dialect`: whose text it is."""

    def __init__(self, tables: Tables, tree: exp.Expression, dialect: str) -> None:
        self._is_postgres = dialect == "postgres"
        self._kinds: dict[str, set[Kind]] = {}
        self._types: dict[str, set[str]] = {}
        for columns in tables.values():
            for column in columns:
                self._kinds.setdefault(column.name.lower(), set()).add(self._kind_of(column.type))
                self._types.setdefault(column.name.lower(), set()).add(column.type.name)
        self._tables = {
            name.lower(): {column.name.lower(): self._kind_of(column.type) for column in columns}
            for name, columns in tables.items()
        }
        self._resolving: set[str] = set()
        self._named: dict[str, list[exp.Expression]] = {}
        for alias in tree.find_all(exp.Alias):
            self._named.setdefault(alias.alias.lower(), []).append(alias.this)
        self._renamed = {c.name.lower() for a in tree.find_all(exp.TableAlias) for c in a.args.get("columns") or ()}

    def _kind_of(self, type: SqlType) -> Kind:
        return "bytes" if self._is_postgres and type.name == "binary" else kind_of(type)

    def kind(self, node: Any, depth: int = 0) -> Kind:
        """The kind; None: it is not known."""
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, exp.Null):  # a quotient with NULL is NULL either way
            return "integer"
        if isinstance(node, exp.Boolean | exp.Predicate | exp.Not | exp.And | exp.Or):
            return "boolean"
        if isinstance(node, exp.Literal):
            return "text" if node.is_string else "integer" if node.is_int else "decimal"
        if isinstance(node, exp.Column):
            read = self._read_of_tables(node)
            return read[0] if read else self._column(node.name.lower(), depth)
        if isinstance(node, exp.Cast | exp.TryCast):
            return _kind_of_type(node.to)
        if isinstance(node, _INTEGERS):
            return "integer"
        if self._is_postgres and isinstance(node, exp.Sum | exp.Avg):
            return self._of_postgres(node, depth)
        if isinstance(node, _DOUBLES):
            return "double"
        if isinstance(node, _TEXTS):
            return "text"
        if isinstance(node, exp.Extract):
            return "decimal" if self._is_postgres else "integer"
        if isinstance(node, exp.CurrentTimestamp):
            return "timestamptz"
        if isinstance(node, exp.TimestampTrunc) and self._is_postgres:
            return "timestamp" if self.kind(node.this, depth + 1) == "timestamp" else "timestamptz"
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression.unnest(), exp.Interval):
            moved = self.kind(node.this, depth + 1)
            return "timestamp" if moved == "date" else moved
        if isinstance(node, exp.Floor | exp.Ceil) and self._is_postgres:
            return "double" if (of := self.kind(node.this, depth + 1)) == "integer" else of
        if isinstance(node, exp.CurrentDate):
            return "date"
        if isinstance(node, _EITHER):
            return _combined_kind([self.kind(node.this, depth + 1), self.kind(node.expression, depth + 1)])
        return self._of_many(node, depth)

    def _of_many(self, node: Any, depth: int) -> Kind:
        """The kind of an expression that takes it from one or several of its arguments."""
        if isinstance(node, exp.Subquery | exp.Select) and isinstance(node.unnest(), exp.Select):
            shown = node.unnest().expressions
            return self.kind(shown[0], depth + 1) if len(shown) == 1 else None
        if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least | exp.Nullif):
            arguments = [node.this, *node.expressions] if not isinstance(node, exp.Nullif) else [node.this]
        elif isinstance(node, exp.Case):
            arguments = [i.args.get("true") for i in node.args.get("ifs", ())]
            arguments += [node.args["default"]] if node.args.get("default") is not None else []
        elif isinstance(node, _SAME):
            arguments = [node.this or next(iter(node.expressions), None)]
        else:
            return None
        return _combined_kind([self.kind(a, depth + 1) for a in arguments])

    def _of_postgres(self, node: Any, depth: int) -> Kind:
        """There a sum of eight-byte integers is numeric, and so is an average of any integers, which is a double in
        Spark: of that, no kind is known."""
        kind = self.kind(node.this, depth + 1)
        if kind != "integer":
            return kind
        return None if isinstance(node, exp.Avg) else "integer" if self._is_narrow(node.this) else "decimal"

    def _is_narrow(self, node: Any) -> bool:
        """Whether an expression of integers is certainly one of less than eight bytes."""
        inside = list(node.walk())
        names = [each.name.lower() for each in inside if isinstance(each, exp.Column)]
        return all(isinstance(each, _PLAIN) for each in inside) and all(
            name in self._kinds and "bigint" not in self._types[name] and name not in self._named for name in names
        )

    def integer_type(self, node: Any) -> str | None:
        """The type of a column of integers, where all columns of its name have it; None: it is not known."""
        name = node.name.lower() if isinstance(node, exp.Column) else ""
        found = self._types.get(name, set())
        return next(iter(found)) if len(found) == 1 and name not in {*self._named, *self._renamed} else None

    def _read_of_tables(self, column: exp.Column) -> list[Kind]:
        """The kinds of a column of tables that its SELECT reads, where nothing else has its name; empty: not known. A
        name of the select list is none where rows are read, filtered and put into groups."""
        below: exp.Expression = column
        while below.parent is not None and not isinstance(below.parent, exp.Select):
            below = below.parent
        select, qualifier = below.parent, column.table.lower()
        source = select.args.get("from_") if select is not None else None
        if select is None or source is None or not (qualifier or below.arg_key in _READS_ROWS):
            return []
        found = set[Kind]()
        for each in (source, *(select.args.get("joins") or ())):
            of = each.this
            if qualifier and of.alias_or_name.lower() != qualifier:
                continue
            plain = isinstance(of, exp.Table) and not of.alias_column_names and not of.args.get("joins")
            columns = self._tables.get(".".join(part.name for part in of.parts).lower()) if plain else None
            if columns is None:
                return []
            if column.name.lower() in columns:
                found.add(columns[column.name.lower()])
        return list(found) if len(found) == 1 else []

    def _column(self, name: str, depth: int) -> Kind:
        if name in self._renamed:
            return None
        kinds = set(self._kinds.get(name, ()))
        if name not in self._resolving:  # a + 1 AS a reads another a
            self._resolving.add(name)
            kinds |= {self.kind(e, depth + 1) for e in self._named.get(name, ()) if not _is_column(e, name)}
            self._resolving.discard(name)
        return next(iter(kinds)) if len(kinds) == 1 else None


def _is_column(node: Any, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == name


def _combined_kind(kinds: list[Kind]) -> Kind:
    """The kind of a value that is computed from others, or is one of them."""
    if "double" in kinds:
        return "double"
    if "decimal" in kinds:
        return "decimal" if None not in kinds else None
    return kinds[0] if kinds and all(k == kinds[0] for k in kinds) else None


def kind_of(type: SqlType) -> Kind:
    """The kind of a column of this type."""
    if type.is_integral:
        return "integer"
    name: dict[str, Kind] = {
        "double": "double",
        "float": "double",
        "decimal": "decimal",
        "boolean": "boolean",
        "string": "text",
        "date": "date",
        "timestamp": "timestamptz",
        "timestamp_ntz": "timestamp",
    }
    return name.get(type.name)


def _kind_of_type(type: Any) -> Kind:
    kinds = exp.DataType.Type
    if type.this in exp.DataType.INTEGER_TYPES:
        return "integer"
    if type.this in (kinds.FLOAT, kinds.DOUBLE):
        return "double"
    if type.this in exp.DataType.REAL_TYPES:
        return "decimal"
    if type.this in exp.DataType.TEXT_TYPES:
        return "text"
    if type.this in (kinds.TIMESTAMPTZ, kinds.TIMESTAMPLTZ):
        return "timestamptz"
    if type.this in (kinds.TIMESTAMP, kinds.TIMESTAMPNTZ):
        return "timestamp"
    if type.this == kinds.VARBINARY:
        return "bytes"
    return {kinds.BOOLEAN: "boolean", kinds.DATE: "date"}.get(type.this)  # type: ignore[return-value]
