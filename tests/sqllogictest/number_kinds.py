"""The kind of number of an expression: other engines divide integers as integers, Spark's `/` gives a fraction.

A column is what all columns of its name are, in tables and among what the text itself names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

if TYPE_CHECKING:
    from tests.sqllogictest.database import Database

Kind = Literal["integer", "fraction", "boolean"] | None
_INTEGERS = (exp.Count, exp.Length, exp.IntDiv, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Extract, exp.StrPosition)
_FRACTIONS = (exp.Avg, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow, exp.Stddev, exp.Variance)
_SAME = (exp.Paren, exp.Neg, exp.Sum, exp.Min, exp.Max, exp.Abs, exp.Distinct, exp.Window, exp.Filter, exp.Alias)
_EITHER = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)
_DEEPEST = 40


class Numbers:
    """The columns that a text can mean."""

    def __init__(self, database: Database, tree: exp.Expression) -> None:
        self._kinds: dict[str, set[Kind]] = {}
        for table in database.tables.values():
            for column in table.columns:
                integral, number = column.type.is_integral, column.type.name in ("double", "float", "decimal")
                other: Kind = "boolean" if column.type.name == "boolean" else None
                kind: Kind = "integer" if integral else "fraction" if number else other
                self._kinds.setdefault(column.name.lower(), set()).add(kind)
        self._resolving: set[str] = set()
        self._named: dict[str, list[exp.Expression]] = {}
        for alias in tree.find_all(exp.Alias):
            self._named.setdefault(alias.alias.lower(), []).append(alias.this)
        self._renamed = {c.name.lower() for a in tree.find_all(exp.TableAlias) for c in a.args.get("columns") or ()}

    def kind(self, node: Any, depth: int = 0) -> Kind:
        """Integer, fraction, or not known."""
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, exp.Null):  # a quotient with NULL is NULL either way
            return "integer"
        if isinstance(node, exp.Boolean | exp.Predicate | exp.Not | exp.And | exp.Or):
            return "boolean"
        if isinstance(node, exp.Literal):
            return None if node.is_string else "integer" if node.is_int else "fraction"
        if isinstance(node, exp.Column):
            return self._column(node.name.lower(), depth)
        if isinstance(node, exp.Cast | exp.TryCast):
            return _kind_of_type(node.to)
        if isinstance(node, _INTEGERS):
            return "integer"
        if isinstance(node, _FRACTIONS):
            return "fraction"
        if isinstance(node, _EITHER):
            return _together([self.kind(node.this, depth + 1), self.kind(node.expression, depth + 1)])
        return self._of_many(node, depth)

    def _of_many(self, node: Any, depth: int) -> Kind:
        """What takes its kind from one or several of its arguments."""
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
        return _together([self.kind(a, depth + 1) for a in arguments])

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


def _together(kinds: list[Kind]) -> Kind:
    if "fraction" in kinds:
        return "fraction"
    return "integer" if kinds and all(k == "integer" for k in kinds) else None


def _kind_of_type(type: Any) -> Kind:
    if type.this in exp.DataType.INTEGER_TYPES:
        return "integer"
    if type.this == exp.DataType.Type.BOOLEAN:
        return "boolean"
    return "fraction" if type.this in exp.DataType.REAL_TYPES else None
