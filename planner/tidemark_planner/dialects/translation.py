"""SQL of other engines as Spark's, through sqlglot.

SELECT a / 2, a::text FROM t     ──►     SELECT a DIV 2, CAST(a AS STRING) FROM t

The translator refuses, by name, each construct that may mean something else in Spark (meanings.py): a guess would be a
wrong answer.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import sqlglot
from sqlglot import errors, exp
from sqlglot.dialects.dialect import Dialect

from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.meanings import as_spark
from tidemark_planner.dialects.number_kinds import Tables

_NULLS = re.compile(r"default_null_order\W+(?:TO\b|=)?\W*(\w+)", re.IGNORECASE)
_ORDERINGS = ("nulls_are_small", "nulls_are_large")
_AS = {"cockroach": "postgres"}


class Translator:
    """The translation from a dialect for one file, whose settings change it."""

    def __init__(self, dialect: str) -> None:
        self.dialect = _AS.get(dialect, dialect)
        self._is_cockroachs = dialect == "cockroach"
        self._nulls_first: bool | None = None

    @property
    def is_one_transaction(self) -> bool:
        """Whether several statements of one text succeed or fail together."""
        return self.dialect == "postgres" and not self._is_cockroachs

    @property
    def is_foreign(self) -> bool:
        return self.dialect not in ("", "spark")

    def setting(self, sql: str) -> None:
        """A SET or PRAGMA: where NULL stands in an order is the one that changes results."""
        if found := _NULLS.search(sql):
            self._nulls_first = "first" in found[1].lower()

    def __call__(self, sql: str, tables: Tables) -> str:
        if not self.is_foreign:
            return sql
        logging.getLogger("sqlglot").setLevel(logging.ERROR)
        try:
            tree = sqlglot.parse_one(sql, read=self.dialect)
            if self._nulls_first is not None or self._is_cockroachs:
                self._order_nulls(sql, tree)
            made = as_spark(tree, self.dialect, tables, divides_integers=not self._is_cockroachs)
            return str(made.sql("spark", unsupported_level=sqlglot.ErrorLevel.RAISE))
        except (errors.SqlglotError, RecursionError, ValueError, AttributeError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else "cannot be read"
            raise NotTranslated(f"{self.dialect}: {reason}") from None

    def _order_nulls(self, sql: str, tree: Any) -> None:
        """Orders that do not say where NULL stands: those that two rules of default read differently."""
        base = Dialect.get_or_raise(self.dialect).__class__
        read = []
        for ordering in _ORDERINGS:
            kind = type(f"{base.__name__}{ordering}", (base,), {"NULL_ORDERING": ordering})
            read.append(list(sqlglot.parse_one(sql, read=kind).find_all(exp.Ordered)))
        for node, *others in zip(tree.find_all(exp.Ordered), *read, strict=True):
            if others[0].args.get("nulls_first") != others[1].args.get("nulls_first"):
                small = others[0].args.get("nulls_first")  # NULL is the least value: CockroachDB's rule
                node.set("nulls_first", small if self._nulls_first is None else self._nulls_first)
