"""SQL of other engines as Spark's, through sqlglot.

SELECT a / 2, a::text FROM t     ──►     SELECT CAST(a / 2 AS BIGINT), CAST(a AS STRING) FROM t
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sqllogictest.database import Database


class NotTranslated(Exception):
    """Text that sqlglot cannot read, or for which Spark has nothing."""


def translator(dialect: str) -> Callable[[str, Database], str]:
    """The translation from a dialect to Spark's."""
    if dialect in ("", "spark"):
        return lambda sql, _: sql

    def translate(sql: str, database: Database) -> str:
        return _translated(sql, dialect, database)

    return translate


def _translated(sql: str, dialect: str, database: Database) -> str:
    import sqlglot
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(sql, read=dialect)
        if isinstance(tree, exp.Command):
            raise NotTranslated(f"{dialect}: {tree.name} is not understood")
        whole = _Integers(database).divided(tree)
        return str(whole.sql("spark", unsupported_level=sqlglot.ErrorLevel.RAISE))
    except (errors.SqlglotError, RecursionError, ValueError) as error:
        raise NotTranslated(f"{dialect}: {str(error).splitlines()[0] if str(error) else 'cannot be read'}") from None


class _Integers:
    """What of an expression is an integer: a quotient of two of them is one too, where Spark's `/` is no integer."""

    def __init__(self, database: Database) -> None:
        types: dict[str, set[bool]] = {}
        for table in database.tables.values():
            for column in table.columns:
                types.setdefault(column.name.lower(), set()).add(column.type.is_integral)
        self._columns = {name for name, found in types.items() if found == {True}}

    def divided(self, tree: Any) -> Any:
        """The tree with integers divided by `DIV`."""
        from sqlglot import exp

        def divide(node: Any) -> Any:
            if type(node) is not exp.Div or not node.args.get("typed"):
                return node
            if self._is_integer(node.this) and self._is_integer(node.expression):
                return exp.IntDiv(this=node.this, expression=node.expression)
            return exp.Div(this=node.this, expression=node.expression, typed=False, safe=node.args.get("safe"))

        return tree.transform(divide)

    def _is_integer(self, node: Any) -> bool:
        from sqlglot import exp

        if isinstance(node, exp.Literal):
            return bool(node.is_int)
        if isinstance(node, exp.Column):
            return node.name.lower() in self._columns
        if isinstance(node, exp.Cast):
            return node.to.this in exp.DataType.INTEGER_TYPES
        if isinstance(node, exp.Count | exp.Length | exp.IntDiv):
            return True
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod | exp.Div):
            return self._is_integer(node.this) and self._is_integer(node.expression)
        inside = exp.Paren | exp.Neg | exp.Sum | exp.Min | exp.Max | exp.Abs | exp.Distinct
        return isinstance(node, inside) and self._is_integer(node.this or node.expressions[0])
