"""The meaning of another engine's expressions in Spark: the same, another expression, or a refusal.

    function        sqlite                       postgres               duckdb
    max(a, b)       NULL if one of them is       -                      -
    a LIKE 'x%'     ILIKE                        LIKE                   LIKE
    a / b           number_kinds                 number_kinds           a fraction
    log(x)          log10(x)                     log10(x)               log10(x)

A function that is on no list here is not translated, even where Spark has one of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.number_kinds import FRACTIONS, Numbers, Tables
from tidemark_planner.dialects.rows_of_functions import as_relation

_SAME = frozenset(
    "Abs And Avg Case Ceil Coalesce Concat ConcatWs Count CountIf CovarPop CovarSamp Corr CumeDist CurrentDate "
    "CurrentTimestamp DenseRank EndsWith Exists Exp FirstValue Floor GroupConcat Grouping If Initcap Lag "
    "LastValue Lead Left Length Ln LogicalAnd LogicalOr Lower Max Min Not Ntile Nullif Nvl2 Or Pad PercentRank Pow "
    "Rank Repeat Replace Reverse Right RowNumber Sign Sqrt Cbrt StartsWith Stddev StddevPop StddevSamp StrPosition Sum "
    "Trim Upper Variance VariancePop Xor Pi Degrees Radians Sin Cos Tan Asin Acos Atan Atan2 Year Month Quarter "
    "NthValue Struct "
    "ExplodingGenerateSeries GenerateSeries Array Unnest MD5 Chr Contains Explode Inline Filter Distinct "
    "JSONBContains PercentileCont PercentileDisc WithinGroup Round DateTrunc TimestampTrunc Any All Nvl".split()
)
# Under the same name in Spark, where sqlglot knows no class of them.
_PLAIN = frozenset(
    "log10 log2 bool_and bool_or every char_length character_length octet_length bit_length ascii "
    "ltrim rtrim lpad rpad sinh cosh tanh cot initcap percentile_cont percentile_disc unix_micros pmod rint".split()
)
_NO_ESCAPE = ("sqlite", "duckdb")
_NULL_IF_ANY = ("sqlite", "mysql")
_ZERO_IS_NULL = ("sqlite", "mysql", "duckdb")
_FOLDS = ("sqlite", "mysql")
_LOG_IS_LOG10 = ("sqlite", "postgres", "duckdb", "risingwave", "materialize", "redshift")
_ROUNDS = ("postgres", "duckdb", "risingwave", "materialize", "redshift")
_OWN_TEXT = ("postgres", "mysql", "risingwave", "materialize", "redshift")
_PARTS = frozenset("YEAR MONTH DAY HOUR MINUTE SECOND QUARTER WEEK DOY".split())
_WIDER = {"INT": "BIGINT", "SMALLINT": "BIGINT", "TINYINT": "BIGINT", "MEDIUMINT": "BIGINT"}
_OTHER_TYPES = {"INT128": "DECIMAL(38, 0)", "UBIGINT": "DECIMAL(20, 0)", "UINT": "BIGINT", "USMALLINT": "INT"}
_ODD = (exp.Glob, exp.SimilarTo, exp.Bracket, exp.JSONExtract, exp.JSONExtractScalar, exp.Pivot, exp.Placeholder)


def as_spark(tree: exp.Expression, dialect: str, tables: Tables, *, divides_integers: bool = True) -> exp.Expression:
    """The tree with everything in Spark's words; raises NotTranslated."""
    if isinstance(tree, exp.Command):
        raise NotTranslated(f"{dialect}: {tree.name} is not understood")
    meaning = _Meaning(dialect, Numbers(tables, tree, dialect), divides_integers)
    # From the leaves up: what stands inside is Spark's already.
    for node in reversed(list(tree.walk())):
        made = meaning.of(node)
        if made is not node:
            node = node.replace(made) if node.parent else made
            tree = node if node.parent is None else tree
    return tree


class _Meaning:
    def __init__(self, dialect: str, numbers: Numbers, divides_integers: bool) -> None:
        self._dialect, self._numbers, self._divides_integers = dialect, numbers, divides_integers
        self._own: dict[type[exp.Expression], Callable[[Any], exp.Expression]] = {
            exp.Greatest: self._extreme,
            exp.Least: self._extreme,
            exp.Like: self._like,
            exp.ILike: self._pattern,
            exp.Extract: self._extract,
            exp.Log: self._log,
            exp.Substring: self._substring,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.DataType: self._type,
            exp.Div: self._divided,
            exp.IntDiv: self._by_zero,
            exp.Mod: self._by_zero,
            exp.RegexpLike: self._regexp,
            exp.Anonymous: self._anonymous,
            exp.Table: as_relation,
            exp.In: _in,
            exp.Window: self._window,
            exp.Concat: self._text,
            exp.ConcatWs: self._text,
            exp.DPipe: self._text,
            exp.Join: self._join,
            exp.Alias: self._alias,
        }

    def of(self, node: exp.Expression) -> exp.Expression:
        own = self._own.get(type(node))
        if own:
            return own(node)
        if isinstance(node, _ODD) or (isinstance(node, exp.Func) and type(node).__name__ not in _SAME):
            raise self._unknown(node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper(), node)
        return node

    def _unknown(self, what: str, node: Any = None) -> NotTranslated:
        return NotTranslated(f"{self._dialect}: what {what} means in Spark is not known here", node)

    def _extreme(self, node: Any) -> exp.Expression:
        arguments = [node.this, *node.expressions]
        if self._dialect not in _NULL_IF_ANY:
            return exp.func(node.sql_name(), *arguments)
        missing = exp.or_(*(a.copy().is_(exp.null()) for a in arguments))
        return exp.case().when(missing, exp.null()).else_(exp.func(node.sql_name(), *(a.copy() for a in arguments)))

    def _like(self, node: Any) -> exp.Expression:
        self._pattern(node)
        made = exp.ILike if self._dialect in _FOLDS else exp.Like
        return made(this=node.this, expression=node.expression, negate=node.args.get("negate"))

    def _pattern(self, node: Any) -> exp.Expression:
        """A backslash escapes in Spark."""
        pattern = node.expression
        escaped = isinstance(node.parent, exp.Escape)
        known = isinstance(pattern, exp.Literal) and "\\" not in pattern.this
        if self._dialect in _NO_ESCAPE and not escaped and isinstance(pattern, exp.Literal) and not known:
            raise self._unknown("LIKE with a backslash")
        if not isinstance(node, exp.ILike):
            return node
        return exp.ILike(this=node.this, expression=pattern, negate=node.args.get("negate"))

    def _extract(self, node: Any) -> exp.Expression:
        part = node.name.upper()
        if part in _PARTS:
            return exp.Extract(this=node.this, expression=node.expression)
        if part in ("DOW", "DAYOFWEEK", "WEEKDAY"):
            day = exp.Extract(this=exp.var("DAYOFWEEK"), expression=node.expression)
            return exp.paren(exp.Sub(this=day, expression=exp.Literal.number(1)))
        if part == "ISODOW":
            return exp.Extract(this=exp.var("DAYOFWEEK_ISO"), expression=node.expression)
        raise self._unknown(f"EXTRACT({part})")

    def _log(self, node: Any) -> exp.Expression:
        if node.expression or self._dialect not in _LOG_IS_LOG10:
            return exp.func("LOG", node.this, node.expression) if node.expression else exp.func("LN", node.this)
        return exp.Anonymous(this="LOG10", expressions=[node.this])

    def _substring(self, node: Any) -> exp.Expression:
        """Places before the first are none in Spark, and count elsewhere."""
        start = node.args.get("start")
        sign = -1 if isinstance(start, exp.Neg) else 1
        number = start.this if isinstance(start, exp.Neg) else start
        if start is not None and not (isinstance(number, exp.Literal) and number.is_int and int(number.this)):
            raise self._unknown("SUBSTRING from a computed place or 0")
        if sign < 0 and self._dialect not in ("sqlite", "duckdb", "mysql"):
            raise self._unknown("SUBSTRING from a negative place")
        return exp.Substring(this=node.this, start=start, length=node.args.get("length"))

    def _cast(self, node: Any) -> exp.Expression:
        """Fractions are rounded to integers in some engines, and cut in Spark."""
        inner = node.this
        if node.to.this in exp.DataType.INTEGER_TYPES and self._dialect in _ROUNDS:
            kind = self._numbers.kind(inner)
            if kind == "decimal":
                node.set("this", exp.func("ROUND", inner))
            elif kind == "double":  # halves go to the even neighbour
                node.set("this", exp.Anonymous(this="RINT", expressions=[inner.copy()]))
        if isinstance(inner, exp.Literal | exp.Neg) and str(node.to.this).endswith("DECIMAL") and not _fits(inner):
            raise self._unknown(f"{inner.sql()} as a decimal of any length")
        if node.to.this in exp.DataType.TEXT_TYPES:
            self._as_text(inner)
        if node.to.this in (exp.DataType.Type.BINARY, exp.DataType.Type.VARBINARY) and "\\" in inner.name:
            raise self._unknown("text as bytes")
        if self._dialect == "sqlite" and node.to.this in (exp.DataType.Type.DECIMAL, exp.DataType.Type.BOOLEAN):
            raise self._unknown(f"CAST AS {node.to.sql().upper()}")
        return exp.Cast(this=node.this, to=node.to) if type(node) is exp.Cast else node

    def _window(self, node: Any) -> exp.Expression:
        """Refuse a frame of rows without an order. It leaves open which rows come before; some engines take that of
        insertion."""
        frame = node.args.get("spec")
        if frame is not None and frame.args.get("kind") == "ROWS" and not node.args.get("order"):
            raise self._unknown("a frame of rows without ORDER BY")
        return node

    def _join(self, node: Any) -> exp.Expression:
        if str(node.args.get("method") or "").upper() not in ("", "NATURAL"):
            raise self._unknown(f"{node.args['method'].upper()} JOIN", node)
        return node

    def _alias(self, node: Any) -> exp.Expression:
        """`sum(x) EXPORT_STATE` is read as an alias, and gives the state of the aggregate."""
        if self._dialect == "duckdb" and node.alias.upper() == "EXPORT_STATE":
            raise self._unknown("EXPORT_STATE", node)
        return node

    def _text(self, node: Any) -> exp.Expression:
        for argument in [node.this, node.args.get("expression"), *(node.expressions or ())]:
            self._as_text(argument)
        return node

    def _as_text(self, node: Any) -> None:
        """true is 't' in some engines, and 4.0 is '4'."""
        of = self._numbers.kind(node)
        if self._dialect in _OWN_TEXT and (of == "boolean" or (of in FRACTIONS and not isinstance(node, exp.Literal))):
            raise self._unknown(f"a {of} as text")

    def _type(self, node: Any) -> exp.Expression:
        name = node.this.value if hasattr(node.this, "value") else str(node.this)
        if name in ("TIME", "TIMETZ"):
            raise self._unknown(f"the type {name}")
        if name in _OTHER_TYPES:
            return exp.DataType.build(_OTHER_TYPES[name])
        if self._dialect == "sqlite" and name in _WIDER:
            return exp.DataType.build(_WIDER[name])
        if name == "DECIMAL" and not node.expressions and self._dialect in _ROUNDS:
            return exp.DataType.build("DECIMAL(18, 3)" if self._dialect == "duckdb" else "DECIMAL(38, 10)")
        return exp.DataType.build("STRING") if name in ("VARCHAR", "CHAR", "NCHAR") and not node.expressions else node

    def _divided(self, node: Any) -> exp.Expression:
        divisor = self._safe(node.expression)
        if not node.args.get("typed") or not self._divides_integers:
            return exp.Div(this=node.this, expression=divisor, typed=False, safe=False)
        left, right = self._numbers.kind(node.this), self._numbers.kind(node.expression)
        if left == right == "integer":
            return exp.IntDiv(this=node.this, expression=divisor)
        if left in FRACTIONS or right in FRACTIONS:
            return exp.Div(this=node.this, expression=divisor, typed=False, safe=False)
        raise self._unknown("a quotient of what may be integers or not")

    def _by_zero(self, node: Any) -> exp.Expression:
        divisor = self._safe(node.expression)
        return node if divisor is node.expression else type(node)(this=node.this, expression=divisor)

    def _safe(self, divisor: Any) -> Any:
        """The divisor, or NULL instead of zero, where a division by zero is no error."""
        inside = divisor.unnest() if isinstance(divisor, exp.Paren) else divisor
        inside = inside.this if isinstance(inside, exp.Neg) else inside
        never = isinstance(inside, exp.Literal) and inside.is_number and float(inside.this) != 0
        if never or self._dialect not in _ZERO_IS_NULL or isinstance(inside, exp.Nullif):
            return divisor
        return exp.func("NULLIF", divisor.copy(), exp.Literal.number(0))

    def _regexp(self, node: Any) -> exp.Expression:
        if node.args.get("flag") is not None or not isinstance(node.expression, exp.Literal):
            raise self._unknown("a regular expression with flags, or one that is computed")
        return exp.RegexpLike(this=node.this, expression=node.expression)

    def _anonymous(self, node: Any) -> exp.Expression:
        name = node.name.lower()
        if name == "total" and self._dialect == "sqlite":
            total = exp.func("SUM", exp.cast(node.expressions[0], "DOUBLE"))
            return exp.func("COALESCE", total, exp.cast(exp.Literal.number(0), "DOUBLE"))
        if name not in _PLAIN:
            raise self._unknown(f"{name}()")
        return node


def _in(node: Any) -> exp.Expression:
    """An empty list contains nothing, not even NULL."""
    empty = not node.expressions and not any(node.args.get(name) for name in ("query", "unnest", "field"))
    return exp.false() if empty else node


def _fits(literal: Any) -> bool:
    """Whether a number has no more digits than the decimals that stand for those of any length."""
    text = (literal.this if isinstance(literal, exp.Neg) else literal).name.strip()
    found = re.fullmatch(r"[+-]?(\d*)\.?(\d*)", text)
    return found is not None and len(found[1]) <= 28 and len(found[2]) <= 10
