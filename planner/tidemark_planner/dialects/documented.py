"""The allow-list of dialects whose engines do not run in the tests: what they document, where Spark does exactly that.

    refused in     what, and why
    all            arithmetic of decimals, casts of fractions, quotients with a scale of their own, functions of text
    bigquery       doubles in comparisons and orders: NaN equals nothing there, and comes first in an order
    snowflake      a quotient without a double: it has six digits
    tsql           text in comparisons, keys and orders: they follow a collation; sum of int: it overflows as int

Two differences are not refused, since they are errors here and never other values: integers keep the width that their
columns have (INT is of 64 bits or 38 digits there), and sums are of 64 bits.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from tidemark_planner.dialects.admission import Check, is_iso_date, read_constructs, words
from tidemark_planner.dialects.number_kinds import Numbers, Tables

DOCUMENTED = ("bigquery", "snowflake", "tsql")

_COMMON = """
    Select: distinct expressions from_ group having joins limit offset order where with_
    Subquery: alias this joins; CTE: alias this; With: expressions; TableAlias: columns this; Table: alias db joins this
    From: this; Where: this; Having: this; Group: expressions; Limit: expression; Offset: expression
    Order: expressions; Ordered: desc nulls_first this; Distinct: expressions
    Star:; Column: db table this; Identifier: quoted this; Alias: alias this; Paren: this
    Literal: is_string this; Null:; Boolean: this; Neg: this; Cast: this to; DataType: this
    And: expression this; Or: expression this; Not: this; EQ: expression this; NEQ: expression this; GT: expression this
    GTE: expression this; LT: expression this; LTE: expression this; Is: expression negate this; Between: high low this
    In: expressions query this; Exists: this; Add: expression this; Sub: expression this; Mul: expression this
    Div: expression this typed safe; Case: default ifs; If: this true false; Coalesce: expressions this
    Nullif: expression this; Count: big_int this; Sum: this; Avg: this; Min: this; Max: this
    Window: order over partition_by this; RowNumber:; Rank:; DenseRank:
"""
_OF_STANDARD_TEXT = """
    Join: kind on side this using
    Union: distinct expression this order limit offset with_; Except: distinct expression this order limit offset with_
    Intersect: distinct expression this order limit offset with_
    Like: expression negate this; DPipe: expression safe this; Length: binary this; Extract: expression this; Var: this
"""
_OF_COLLATED_TEXT = """
    Join: kind on side this
    Union: distinct expression this order limit offset with_
"""
_ADMITTED = {
    "bigquery": read_constructs(_COMMON + _OF_STANDARD_TEXT),
    "snowflake": read_constructs(_COMMON + _OF_STANDARD_TEXT),
    "tsql": read_constructs(_COMMON + _OF_COLLATED_TEXT),
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)
_CHOICES = (exp.Case, exp.If, exp.Coalesce, exp.Nullif)
_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY")
_EXACT, _WHOLE_AND_DOUBLE = frozenset({"integer", "decimal"}), frozenset({"integer", "double"})


def check_documented(tree: exp.Expression, dialect: str, tables: Tables) -> None:
    """Raises NotTranslated unless every part of the tree is documented to mean what it means in Spark."""
    numbers = Numbers(tables, tree, dialect)
    columns = {column.name.lower() for table in tables.values() for column in table}
    check = _Documented(dialect, numbers, columns)
    for node in tree.walk():
        check(node)


class _Documented(Check):
    def __init__(self, dialect: str, numbers: Numbers, columns: set[str]) -> None:
        super().__init__(dialect, numbers, _ADMITTED[dialect])
        self._columns, self._is_collated = columns, dialect == "tsql"
        self.own = {
            **dict.fromkeys(_COMPARISONS, self._compared),
            **dict.fromkeys(_CHOICES, self._chosen),
            **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), self._arithmetic),
            exp.Alias: self._alias,
            exp.Avg: self._average,
            exp.Cast: self._cast,
            exp.Column: self._column,
            exp.Distinct: self._distinct_rows,
            exp.Div: self._quotient,
            exp.DPipe: self._concatenated,
            exp.Extract: self._extract,
            exp.Join: self._joined,
            exp.Length: self._length,
            exp.Like: self._like,
            exp.Literal: self._plain_literal,
            exp.Max: self._extreme,
            exp.Min: self._extreme,
            exp.Neg: self._negated,
            exp.Ordered: self._ordered,
            exp.Sum: self._total,
            exp.Union: self._union,
            exp.Window: self._window,
        }

    def _require_one_kind(self, nodes: list[Any], what: str, node: Any) -> None:
        """Refuse values that are compared, or of which one is chosen, unless they are of one kind, or numbers without a
        fraction in binary."""
        given = [each for each in nodes if each is not None and not isinstance(each, exp.Null)]
        kinds = [self.numbers.kind(each) for each in given]
        if "date" in kinds:
            kinds = [
                "date" if kind == "text" and isinstance(each, exp.Literal) and is_iso_date(each.this) else kind
                for kind, each in zip(kinds, given, strict=True)
            ]
        if "double" in kinds:
            kinds = [
                "double" if isinstance(each, exp.Literal) else kind for kind, each in zip(kinds, given, strict=True)
            ]
        if None in kinds or (len(set(kinds)) > 1 and not set(kinds) <= _EXACT):
            raise self.refused(f"{what} of {words(kinds)}", node)
        if self._is_collated and "text" in kinds:
            raise self.refused(f"{what} of text, which follows a collation,", node)

    def _compared(self, node: Any) -> None:
        if isinstance(node, exp.In):
            self.subquery_in(node)
        query = node.args.get("query")
        listed = [*node.expressions, query.unnest() if query is not None else None]
        values = [node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high"), *listed]
        self._require_one_kind(values, "a comparison", node)
        self._no_nan(node, values, "a comparison")

    def _no_nan(self, node: Any, values: list[Any], what: str) -> None:
        kinds = [self.numbers.kind(each) for each in values if each is not None]
        if self.dialect != "bigquery":
            return
        if "double" in kinds or None in kinds:
            raise self.refused(f"{what} of {words(kinds)}, of which NaN differs,", node)
        literals = [each for value in values if value is not None for each in value.find_all(exp.Literal)]
        if any(not each.is_string and not each.is_int for each in literals):
            raise self.refused(f"{what} with a fraction, which is a double there,", node)

    def _chosen(self, node: Any) -> None:
        if isinstance(node, exp.Case):
            values = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
        elif isinstance(node, exp.If):
            if isinstance(node.parent, exp.Case):
                return
            values = [node.args["true"], node.args.get("false")]
        else:
            values = [node.this, node.args.get("expression"), *node.expressions]
        self._require_one_kind(values, "a choice", node)
        if isinstance(node, exp.Nullif):
            self._no_nan(node, values, "NULLIF")

    def _arithmetic(self, node: Any) -> None:
        kinds = self.kinds(node)
        if not set(kinds) <= _WHOLE_AND_DOUBLE:
            raise self.refused(f"{type(node).__name__} of {words(kinds)}", node)

    def _negated(self, node: Any) -> None:
        if self.numbers.kind(node.this) not in ("integer", "decimal", "double"):
            raise self.refused(f"Neg of {words(self.kinds(node))}", node)

    def _quotient(self, node: Any) -> None:
        self._arithmetic(node)
        if self.dialect == "snowflake" and "double" not in self.kinds(node):
            raise self.refused("a quotient of integers, which has six digits (cast one side to double),", node)

    def _total(self, node: Any) -> None:
        kind = self.numbers.kind(node.this)
        if kind not in ("integer", "decimal", "double"):
            raise self.refused(f"sum of {words([kind])}", node)
        if self._is_collated and kind == "integer" and not self._is_wide(node.this):
            raise self.refused("sum of int, which overflows as int (cast it to bigint),", node)

    def _is_wide(self, node: Any) -> bool:
        inner = node.expressions[0] if isinstance(node, exp.Distinct) else node
        return isinstance(inner, exp.Cast) and inner.to.this == exp.DataType.Type.BIGINT

    def _average(self, node: Any) -> None:
        kind = self.numbers.kind(node.this)
        if kind != "double" and not (kind == "integer" and self.dialect == "bigquery"):
            raise self.refused(f"avg of {words([kind])} (cast it to double)", node)

    def _extreme(self, node: Any) -> None:
        self._no_nan(node, [node.this], type(node).__name__.lower())

    def _cast(self, node: Any) -> None:
        name, kind = getattr(node.to.this, "value", str(node.to.this)), self.numbers.kind(node.this)
        if name == "DATE" and isinstance(node.this, exp.Literal) and node.this.is_string:
            if not is_iso_date(node.this.this):
                raise self.refused("a date that is not written as yyyy-mm-dd", node)
            return
        if name not in (("BIGINT", "DOUBLE") if self._is_collated else ("BIGINT", "DOUBLE", "TEXT")):
            raise self.refused(f"the type {node.to.sql(self.dialect)}", node)
        if kind != "integer":
            raise self.refused(f"a cast of {words([kind])}", node)

    def _column(self, node: Any) -> None:
        """Text of a collation may be shown, and nothing else."""
        if isinstance(node.this, exp.Star) or not self._is_collated:
            return
        shown = node.parent.parent if isinstance(node.parent, exp.Alias) else node.parent
        if not isinstance(shown, exp.Select | exp.Is) and self.numbers.kind(node) in ("text", None):
            raise self.refused("text in a key, an order or a function, which follows a collation,", node)

    def _distinct_rows(self, node: Any) -> None:
        self.distinct(node)
        select = node.parent
        if self._is_collated and isinstance(select, exp.Select):
            for each in select.expressions:
                if self.numbers.kind(each) in ("text", None):
                    raise self.refused("DISTINCT of text, which follows a collation,", node)

    def _union(self, node: Any) -> None:
        if self._is_collated and node.args.get("distinct"):
            raise self.refused("UNION without ALL, which compares text by a collation,", node)

    def _alias(self, node: Any) -> None:
        """Dialects take an alias that is a column's name too for one or the other."""
        name = node.alias.lower()
        if name in self._columns and not (isinstance(node.this, exp.Column) and node.this.name.lower() == name):
            raise self.refused(f"the alias {node.alias}, which is a column's name too,", node)

    def _concatenated(self, node: Any) -> None:
        if set(self.kinds(node)) != {"text"}:
            raise self.refused(f"a concatenation of {words(self.kinds(node))} (cast them to text)", node)

    def _length(self, node: Any) -> None:
        if self.numbers.kind(node.this) != "text":
            raise self.refused(f"LENGTH of {words(self.kinds(node))}", node)

    def _like(self, node: Any) -> None:
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or "\\" in pattern.this:
            raise self.refused("LIKE with a backslash, or a pattern that is computed,", node)

    def _plain_literal(self, node: Any) -> None:
        self.literal(node)
        if node.is_string and "\\" in node.this:
            raise self.refused("a text with a backslash", node)

    def _extract(self, node: Any) -> None:
        """Refuse EXTRACT of other parts than those of a date."""
        if node.name.upper() not in _PARTS or self.numbers.kind(node.expression) != "date":
            raise self.refused(f"EXTRACT({node.name.upper()}) of {words([self.numbers.kind(node.expression)])}", node)

    def _joined(self, node: Any) -> None:
        self.join(node)
        self._no_nan(node, [exp.column(each.name) for each in node.args.get("using") or ()], "USING")

    def _ordered(self, node: Any) -> None:
        if isinstance(node.this, exp.Literal) and self.dialect != "snowflake":
            raise self.refused("an order by the place of a column (write its name)", node)
        self._no_nan(node, [node.this], "an order")

    def _window(self, node: Any) -> None:
        if node.args.get("order") is not None and not isinstance(node.this, _RANKS):
            raise self.refused("a window with an order, but of row_number, rank and dense_rank,", node)
