"""The allow-list of each dialect: constructs and functions that were compared with the engine itself.

Every node of sqlglot's tree must be of a class below, with no other arguments than those below: what sqlglot learns to
read later is refused until it is listed. tests/dialects compares each entry with a real PostgreSQL, and with DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlglot import exp

from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.number_kinds import FRACTIONS, TIMES, Kind, Numbers, Tables

COMPARED = ("postgres", "duckdb")

_CONSTRUCTS = """
    Select: distinct expressions from_ group having joins limit offset order where windows with_
    Subquery: alias this joins; CTE: alias this; With: expressions; TableAlias: columns this; Table: alias db joins this
    From: this; Where: this; Having: this; Group: expressions rollup cube grouping_sets
    Rollup: expressions; Cube: expressions; GroupingSets: expressions
    Order: expressions; Ordered: desc nulls_first this; Limit: expression; Offset: expression; Distinct: expressions
    Join: kind method on side this using; Lateral: alias this
    Union: distinct expression this order limit offset with_
    Except: distinct expression this order limit offset with_
    Intersect: distinct expression this order limit offset with_
    Star:; Column: db table this; Identifier: quoted this; Alias: alias this; Paren: this; Tuple: expressions
    Literal: is_string this; Null:; Boolean: this; Neg: this; Cast: this to; DataType: expressions this
    DataTypeParam: this; Interval: this unit; Var: this
    And: expression this; Or: expression this; Not: this; EQ: expression this; NEQ: expression this; GT: expression this
    GTE: expression this; LT: expression this; LTE: expression this; Is: expression negate this
    NullSafeEQ: expression this; NullSafeNEQ: expression this; Between: high low this symmetric
    In: expressions query this; Exists: this; Like: expression negate this; ILike: expression negate this
    Add: expression this; Sub: expression this; Mul: expression this; Div: expression this typed safe
    Mod: expression this; DPipe: expression safe this
    Case: default ifs this; If: this true; Coalesce: expressions this; Nullif: expression this
    Greatest: expressions ignore_nulls this; Least: expressions ignore_nulls this
    Count: big_int this; Sum: this; Avg: this; Min: this; Max: this; LogicalAnd: this; LogicalOr: this
    Filter: expression this; Window: alias order over partition_by spec this
    WindowSpec: end end_side kind start start_side
    RowNumber:; Rank:; DenseRank:; PercentRank:; CumeDist:; Ntile: this; Lag: default offset this
    Lead: default offset this; FirstValue: this; LastValue: this; NthValue: offset this
    Abs: this; Round: decimals this; Floor: this; Ceil: this; Lower: this; Upper: this; Length: this
    Trim: this; Substring: length start this; Replace: expression replacement this; Concat: coalesce expressions safe
    StrPosition: substr this; StartsWith: expression this; Extract: expression this
    CurrentTimestamp:; CurrentDate:
"""


def read_constructs(table: str) -> Mapping[str, frozenset[str]]:
    entries = (entry.partition(":") for line in table.split("\n") for entry in line.split(";") if entry.strip())
    return {name.strip(): frozenset(arguments.split()) for name, _, arguments in entries}


ADMITTED = read_constructs(_CONSTRUCTS)
_OF_DUCKDB = {**ADMITTED, "IntDiv": frozenset({"expression", "this"})}
NUMBERS: tuple[Kind, ...] = ("integer", *FRACTIONS)
_AS_TEXT = ("integer", "text", "date")


def check_duckdb(tree: exp.Expression, tables: Tables) -> None:
    """Raises NotTranslated unless every part of the tree is known to mean the same in Spark."""
    check = _DuckDB(Numbers(tables, tree, "duckdb"))
    for node in tree.walk():
        check(node)


class Check:
    """Refuses a node that is not on the list, or that `own` of its class refuses."""

    def __init__(self, dialect: str, numbers: Numbers, admitted: Mapping[str, frozenset[str]]) -> None:
        self.dialect, self.numbers, self._admitted = dialect, numbers, admitted
        self.own: dict[type[exp.Expression], Callable[[Any], None]] = {}

    def __call__(self, node: exp.Expression) -> None:
        name = type(node).__name__
        known = self._admitted.get(name)
        word = node.sql_name().removeprefix("EXPLODING_") if isinstance(node, exp.Func) else name  # of generate_series
        if isinstance(node, exp.Anonymous):
            word = f"{node.name}()"
        if known is None:
            raise self.refused(word, node)
        others = sorted(at for at, value in node.args.items() if value not in (None, [], False) and at not in known)
        if others:
            raise self.refused(f"{word} with {', '.join(others)}", node)
        own = self.own.get(type(node))
        if own is not None:
            own(node)

    def refused(self, what: str, node: Any) -> NotTranslated:
        return NotTranslated(f"{what} of dialect {self.dialect} is not known to mean the same in Spark", node)

    def kinds(self, node: Any) -> list[Kind]:
        operands = [node.this, node.args.get("expression")]
        return [self.numbers.kind(each) for each in operands if each is not None]

    def literal(self, node: Any) -> None:
        if not node.is_string and "e" in node.this.lower():
            raise self.refused("a number with an exponent (cast a text to double precision)", node)

    def distinct(self, node: Any) -> None:
        if isinstance(node.parent, exp.Select) and node.args.get("on"):
            raise self.refused("DISTINCT ON", node)
        if not isinstance(node.parent, exp.Select) and len(node.expressions) > 1:
            raise self.refused("DISTINCT of several expressions", node)

    def subquery_in(self, node: Any) -> None:
        """Elsewhere Spark takes the NULL of IN (subquery) for false."""
        above = node.parent
        while isinstance(above, exp.Paren | exp.And | exp.Not):
            if isinstance(above, exp.Not) and not isinstance(above.this.unnest(), exp.In):
                break
            above = above.parent
        if node.args.get("query") is not None and not isinstance(above, exp.Where):
            raise self.refused("IN (subquery) outside the conditions of WHERE", node)

    def join(self, node: Any) -> None:
        if str(node.args.get("method") or "").upper() not in ("", "NATURAL"):
            raise self.refused(f"{node.args['method'].upper()} JOIN", node)


class ComparedCheck(Check):
    """`dialect`: its engine runs in the tests."""

    units: Collection[str] = ("DAY", "HOUR", "MINUTE", "SECOND", "MONTH", "YEAR")
    types: Collection[str] = frozenset("INT BIGINT SMALLINT BOOLEAN DOUBLE TEXT DATE DECIMAL".split())

    def __init__(self, dialect: str, numbers: Numbers, admitted: Mapping[str, frozenset[str]]) -> None:
        super().__init__(dialect, numbers, admitted)
        self.own = {
            exp.Add: self.sum,
            exp.Sub: self.sum,
            exp.Mul: self.numeric,
            exp.Mod: self.numeric,
            exp.Neg: self.numeric,
            exp.Abs: self.numeric,
            exp.Div: self.quotient,
            exp.Round: self._round,
            exp.Avg: self._average,
            exp.Cast: self.cast,
            exp.DPipe: self._text,
            exp.Concat: self._text,
            exp.Literal: self.literal,
            exp.Distinct: self.distinct,
            exp.Interval: self.interval,
            exp.Join: self.join,
            exp.Tuple: self._tuple,
            exp.In: self.subquery_in,
            exp.Ordered: self._ordered,
            exp.Having: self._having,
        }

    def _ordered(self, node: Any) -> None:
        """A name alone is the select list's. In an expression it is a column's, and in Spark the select list's."""
        select = node.parent.parent if isinstance(node.parent, exp.Order) else None
        if isinstance(select, exp.Select) and not isinstance(node.this.unnest(), exp.Column):
            self._no_alias(node.this, select, "ORDER BY")

    def _having(self, node: Any) -> None:
        self._no_alias(node.this, node.parent, "HAVING")

    def _no_alias(self, expression: Any, select: Any, where: str) -> None:
        made = {each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias) and not _is_same(each)}
        for column in expression.find_all(exp.Column):
            if not column.table and column.name.lower() in made:
                what = f"{column.name} in an expression of {where}, which may be a column or the select list's"
                raise self.refused(f"{what} (give it another name)", column)

    def numeric(self, node: Any) -> None:
        kinds = self.kinds(node)
        if any(kind not in NUMBERS for kind in kinds):
            raise self.refused(f"{type(node).__name__} of {words(kinds)}", node)

    def sum(self, node: Any) -> None:
        """Numbers, or a time and an interval. Dates differ: their difference is an integer, and an interval."""
        left, right = node.this, node.expression
        if isinstance(right, exp.Interval) and self.numbers.kind(left) in TIMES:
            return
        self.numeric(node)

    def quotient(self, node: Any) -> None:
        """Quotients of decimals have more digits than Spark gives them."""
        self.numeric(node)
        kinds = self.kinds(node)
        if "decimal" in kinds and "double" not in kinds:
            raise self.refused("a quotient of decimals (cast one side to double precision)", node)

    def _round(self, node: Any) -> None:
        """Halves of doubles go to the even neighbour, and in Spark away from zero. A rounded integer is a double."""
        if self.kinds(node)[0] != "decimal":
            raise self.refused(f"round of {words(self.kinds(node))} (cast it to numeric(p, s))", node)

    def _average(self, node: Any) -> None:
        if self.kinds(node)[0] not in ("integer", "double"):
            raise self.refused(f"avg of {words(self.kinds(node))} (cast it to double precision)", node)

    def cast(self, node: Any) -> None:
        to, kind = node.to, self.numbers.kind(node.this)
        name = getattr(to.this, "value", str(to.this))
        if name not in self.types or (name == "DECIMAL") != bool(to.expressions):
            raise self.refused(f"the type {to.sql('postgres')}", node)
        literal = isinstance(node.this, exp.Literal) and node.this.is_string
        if name == "TEXT" and kind not in _AS_TEXT:
            raise self.refused(f"a cast of {words([kind])} to text", node)
        if kind in (None, "bytes") and not literal and not isinstance(node.this, exp.Null):
            raise self.refused("a cast of an expression whose type is not known before planning", node)
        if name == "DECIMAL" and kind == "double":
            raise self.refused("a cast of double precision to numeric", node)
        if name == "BOOLEAN" and kind not in ("boolean", "integer"):
            raise self.refused(f"a cast of {words([kind])} to boolean", node)
        if name == "DATE" and literal and not is_iso_date(node.this.this):
            raise self.refused("a date that is not written as yyyy-mm-dd", node)

    def _text(self, node: Any) -> None:
        is_concat = isinstance(node, exp.Concat)
        parts = node.expressions if is_concat else [node.this, node.expression]
        kinds = [self.numbers.kind(_without_coalesce(each)) for each in parts]
        if any(kind not in (("text",) if is_concat else _AS_TEXT) for kind in kinds):
            raise self.refused(f"a concatenation of {words(kinds)} (cast them to text)", node)

    def interval(self, node: Any) -> None:
        unit = str(node.args.get("unit") or "").upper()
        if unit not in self.units or not isinstance(node.this, exp.Literal) or not self.is_count(node.this.this):
            raise self.refused("an interval of this form (write interval '1 hour')", node)
        above = node.parent
        while isinstance(above, exp.Paren):
            above = above.parent
        if not isinstance(above, exp.Add | exp.Sub):
            raise self.refused("an interval that is not added to a timestamp", node)

    def is_count(self, text: str) -> bool:
        """Whether an interval may have so many of its unit."""
        return text.isdigit()

    def _tuple(self, node: Any) -> None:
        """Rows with NULLs compare in another way."""
        if not isinstance(node.parent, exp.GroupingSets | exp.Rollup | exp.Cube):
            raise self.refused("Tuple", node)


class _DuckDB(ComparedCheck):
    """A quotient with 0 is infinite there, `%` of 0 an error, and products of decimals overflow earlier."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__("duckdb", numbers, _OF_DUCKDB)
        self.own |= {
            exp.Between: self._between,
            exp.Cast: self._duckdb_cast,
            exp.Div: self._duckdb_quotient,
            exp.IntDiv: self._integer_quotient,
            exp.Mod: self._remainder,
            exp.Mul: self._product,
        }

    def _duckdb_quotient(self, node: Any) -> None:
        self.quotient(node)
        self._never_zero(node)

    def _remainder(self, node: Any) -> None:
        self.numeric(node)
        self._never_zero(node)

    def _integer_quotient(self, node: Any) -> None:
        if self.kinds(node) != ["integer", "integer"]:
            raise self.refused(f"// of {words(self.kinds(node))}", node)
        self._never_zero(node)

    def _never_zero(self, node: Any) -> None:
        divisor = node.expression.unnest()
        divisor = divisor.this if isinstance(divisor, exp.Cast) else divisor
        number = divisor.this if isinstance(divisor, exp.Neg) else divisor
        is_number = isinstance(number, exp.Literal) and not number.is_string and float(number.this) != 0
        is_null = isinstance(divisor, exp.Nullif) and divisor.expression == exp.Literal.number(0)
        if not is_number and not is_null:
            raise self.refused("a division by what may be 0 (write nullif(divisor, 0))", node)

    def _product(self, node: Any) -> None:
        self.numeric(node)
        if self.kinds(node) == ["decimal", "decimal"]:
            raise self.refused("a product of decimals (cast one side to double)", node)

    def _duckdb_cast(self, node: Any) -> None:
        self.cast(node)
        if node.to.this in exp.DataType.INTEGER_TYPES and self.numbers.kind(node.this) == "text":
            raise self.refused("a cast of text to an integer, which rounds,", node)

    def _between(self, node: Any) -> None:
        if node.args.get("symmetric"):
            raise self.refused("BETWEEN SYMMETRIC", node)


def _is_same(alias: Any) -> bool:
    return isinstance(alias.this, exp.Column) and alias.this.name.lower() == alias.alias.lower()


def words(kinds: Sequence[Kind]) -> str:
    return " and ".join(kind or "an unknown type" for kind in dict.fromkeys(kinds))


def _without_coalesce(node: Any) -> Any:
    """sqlglot writes concat(a, b), which leaves NULL out, as concat(coalesce(a, ''), ...) in the end."""
    return node.this if isinstance(node, exp.Coalesce) else node


def is_iso_date(text: str) -> bool:
    return len(text) == 10 and text[4] == text[7] == "-" and (text[:4] + text[5:7] + text[8:]).isdigit()
