"""SQL of other engines as Spark's, through sqlglot.

SELECT a / 2, a::text FROM t     ──►     SELECT a DIV 2, CAST(a AS STRING) FROM t

An expression that may mean something else in Spark is refused by name (expression_translation.py). Without a given
dialect, the conditions and directives of the file determine it.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sqllogictest.database import Database

_SIGNS = (
    (
        "duckdb",
        re.compile(r"^(# name: test/|# group: \[|require (skip_reload|noforcestorage)|PRAGMA enable_verif)", re.M),
    ),
    (
        "postgres",
        re.compile(r"^(# LogicTest:|mode cockroach|reset-server|query [A-Z]+ .*(colnames|partialsort))", re.M),
    ),
    ("sqlite", re.compile(r"^(skipif|onlyif) (sqlite|mysql|mssql|oracle|postgresql)\b", re.M)),
    ("sqlite", re.compile(r"^hash-threshold 8$.*?^query [ITR]+ (nosort|rowsort|valuesort)", re.M | re.S)),
)
_READ = 200_000  # characters
_NULLS = re.compile(r"default_null_order\W+(?:TO\b|=)?\W*(\w+)", re.IGNORECASE)
_ORDERINGS = ("nulls_are_small", "nulls_are_large")
_AS = {"cockroach": "postgres"}


class NotTranslated(Exception):
    """Text that sqlglot cannot read, or that is not known to mean anything in Spark."""


def dialect_of(path: Path) -> str:
    """Whose file it is, by what it has that no other's has; Spark's if nothing tells."""
    with path.open("rb") as file:
        text = file.read(_READ).decode("utf-8", "replace").replace("\r\n", "\n")
    return next((name for name, sign in _SIGNS if sign.search(text)), "spark")


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

    def __call__(self, sql: str, database: Database) -> str:
        if not self.is_foreign:
            return sql
        import sqlglot
        from sqlglot import errors

        from tests.sqllogictest.expression_translation import as_spark

        logging.getLogger("sqlglot").setLevel(logging.ERROR)
        try:
            tree = sqlglot.parse_one(sql, read=self.dialect)
            if self._nulls_first is not None or self._is_cockroachs:
                self._order_nulls(sql, tree)
            made = as_spark(tree, self.dialect, database, divides_integers=not self._is_cockroachs)
            return str(made.sql("spark", unsupported_level=sqlglot.ErrorLevel.RAISE))
        except (errors.SqlglotError, RecursionError, ValueError, AttributeError, TypeError) as error:
            message = str(error).splitlines()[0] if str(error) else "cannot be read"
            raise NotTranslated(f"{self.dialect}: {message}") from None

    def _order_nulls(self, sql: str, tree: Any) -> None:
        """Orders that do not say where NULL stands: those that two rules of default read differently."""
        import sqlglot
        from sqlglot import exp
        from sqlglot.dialects.dialect import Dialect

        base = Dialect.get_or_raise(self.dialect).__class__
        read = []
        for ordering in _ORDERINGS:
            kind = type(f"{base.__name__}{ordering}", (base,), {"NULL_ORDERING": ordering})
            read.append(list(sqlglot.parse_one(sql, read=kind).find_all(exp.Ordered)))
        for node, *others in zip(tree.find_all(exp.Ordered), *read, strict=True):
            if others[0].args.get("nulls_first") != others[1].args.get("nulls_first"):
                small = others[0].args.get("nulls_first")  # NULL is the least value: CockroachDB's rule
                node.set("nulls_first", small if self._nulls_first is None else self._nulls_first)


def translator(dialect: str, path: Path | None = None) -> Translator:
    """The translation from a dialect to Spark's; from the one that a file shows, where none is said or it says more."""
    shown = dialect_of(path) if path is not None and dialect in ("", "postgres") else dialect
    return Translator(shown if not dialect or shown == "cockroach" else dialect)
