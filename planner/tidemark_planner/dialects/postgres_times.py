"""Times of PostgreSQL's dialect in Spark's words.

    timestamp '2024-01-31 10:00+02'       TIMESTAMP_NTZ, 10:00: the offset of the text is left out
    timestamptz '2024-01-31 10:00'        TIMESTAMP: 10:00 of the session's zone
    ts >= '2024-01-31'                    the text has the type of what it is compared with
    date_trunc('day', ts)                 of a timestamp a timestamp, of a date a timestamptz
    extract(year from ts)                 a decimal, in Spark an integer; of date_part a double
    extract(epoch from ts)                microseconds, as a decimal with six digits
    floor(extract(epoch from ts) / 300)   an integer quotient of microseconds, which is exact
    d - interval '7 days'                 a timestamp, in Spark a date
    floor(x), ceil(x)                     of doubles and integers a double, in Spark an integer

The tree is checked by admission.py in between: `type_parts` and `type_literals` come before, `as_spark_times` after.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

import sqlglot
from sqlglot import exp

from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.number_kinds import TIMES, Kind, Numbers
from tidemark_planner.dialects.session_dialect import POSTGRES
from tidemark_planner.dialects.time_texts import NoTime, date_of, is_time, timestamp_of, timestamptz_of

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
TRUNCATED = frozenset("SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR".split())
"""The units of date_trunc."""
_WHOLE_PARTS = frozenset("YEAR QUARTER MONTH WEEK DAY DOY DOW ISODOW HOUR MINUTE".split())
_MICROS = 1_000_000
_TYPES: dict[Kind, str] = {"date": "DATE", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ"}
_Type = exp.DataType.Type


def is_text(node: Any) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def type_parts(sql: str, tree: exp.Expression) -> None:
    """Give the whole parts of times the types that `extract` and `date_part` have. sqlglot reads both as extract, so a
    text with both is refused. Raises NotTranslated."""
    found = list(tree.find_all(exp.Extract))
    tokens = sqlglot.tokenize(sql, read=POSTGRES) if found and "date_part" in sql.lower() else []
    calls = pairwise(tokens)
    count = sum(word.text.lower() == "date_part" and mark.text == "(" for word, mark in calls)
    if count not in (0, len(found)):
        raise NotTranslated("date_part beside extract of dialect postgres is not told apart: write extract", found[0])
    for node in found:
        if node.this.name.upper() in _WHOLE_PARTS:
            node.replace(_cast(node, "DOUBLE" if count else "DECIMAL(10, 0)"))


def type_literals(tree: exp.Expression, numbers: Numbers) -> None:
    """Give texts without a type that are compared with a date or time its type."""
    for node in list(tree.walk()):
        if isinstance(node, COMPARISONS):
            sides = [node.this, node.expression]
            for one, other in (sides, sides[::-1]):
                _type(one, numbers.kind(other))
        elif isinstance(node, exp.Between | exp.In):
            kind = numbers.kind(node.this)
            for each in [node.args.get("low"), node.args.get("high"), *node.expressions]:
                _type(each, kind)


def _type(node: Any, kind: Kind) -> None:
    if is_text(node) and kind in _TYPES:
        text = date_of(node.this) if kind == "date" and is_time(node.this) and len(node.this) > 10 else node.this
        made = exp.cast(exp.Literal.string(text), exp.DataType.build(_TYPES[kind], dialect="postgres"))
        made.this.meta.update(node.meta)
        node.replace(made)


def epoch_step(node: Any) -> tuple[exp.Expression, int] | None:
    """The time and the microseconds of `extract(epoch from time) / seconds`; None: the node is no such quotient."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if not isinstance(node, exp.Div) or not isinstance(node.expression, exp.Literal) or node.expression.is_string:
        return None
    of, seconds = node.this.unnest(), node.expression.this
    if not is_epoch(of) or "e" in seconds.lower():
        return None
    micros = Decimal(seconds) * _MICROS
    return (of.expression, int(micros)) if 0 < micros < 10**15 and micros == int(micros) else None


def is_epoch(node: Any) -> bool:
    return isinstance(node, exp.Extract) and str(node.this.name).upper() == "EPOCH"


def as_spark_times(tree: exp.Expression, numbers: Numbers, zone: str) -> exp.Expression:
    """The tree with times in Spark's words. `zone`: of the session. Raises NotTranslated."""
    rewriting = _Times(numbers, zone)
    for node in reversed(list(tree.walk())):
        made = rewriting.of(node)
        if made is not node:
            node.replace(made)
    return tree


class _Times:
    def __init__(self, numbers: Numbers, zone: str) -> None:
        self._numbers, self._zone = numbers, zone
        self._own: dict[type[exp.Expression], Callable[[Any], exp.Expression]] = {
            exp.Cast: self._cast,
            exp.TimestampTrunc: self._truncated,
            exp.Extract: self._extract,
            exp.Floor: self._floor,
            exp.Ceil: lambda node: self._floor_of_double(node, exp.LT, exp.Add),
            exp.Add: self._moved,
            exp.Sub: self._moved,
        }

    def of(self, node: exp.Expression) -> exp.Expression:
        own = self._own.get(type(node))
        return own(node) if own else node

    def _cast(self, node: Any) -> exp.Expression:
        to, text = node.to.this, node.this.this if is_text(node.this) else None
        try:
            if to == _Type.TIMESTAMP:
                return _cast(node.this if text is None else exp.Literal.string(timestamp_of(text)), "TIMESTAMPNTZ")
            if to == _Type.TIMESTAMPTZ and text is not None:
                return _cast(exp.Literal.string(timestamptz_of(text, self._zone)), "TIMESTAMPTZ")
        except NoTime as error:
            raise NotTranslated(str(error), node) from None
        if to == _Type.VARBINARY and text is not None:
            return exp.HexString(this=text[2:])
        return node

    def _truncated(self, node: Any) -> exp.Expression:
        """Spark has date_trunc of TIMESTAMP alone; in UTC a TIMESTAMP_NTZ goes there and back as it is."""
        kind, unit = self._numbers.kind(node.this), exp.var(node.unit.name.upper())
        if kind == "timestamptz":
            return exp.TimestampTrunc(this=node.this, unit=unit)
        made = exp.TimestampTrunc(this=_cast(node.this, "TIMESTAMPTZ"), unit=unit)
        return _cast(made, "TIMESTAMPNTZ") if kind == "timestamp" else made

    def _extract(self, node: Any) -> exp.Expression:
        if not is_epoch(node) or (node.parent is not None and self._in_floor(node)):
            return node
        micros = _cast(self._micros(node.expression), "DECIMAL(20, 0)")
        return exp.paren(exp.Mul(this=micros, expression=exp.Literal.number("0.000001")))

    def _in_floor(self, node: Any) -> bool:
        above = node.parent
        while isinstance(above, exp.Paren | exp.Div):
            above = above.parent
        return isinstance(above, exp.Floor) and epoch_step(above.this) is not None

    def _floor(self, node: Any) -> exp.Expression:
        found = epoch_step(node.this)
        if found is None:
            return self._floor_of_double(node, exp.GT, exp.Sub)
        micros, step = self._micros(found[0]), exp.Literal.number(found[1])
        rest = exp.Anonymous(this="PMOD", expressions=[micros, step])
        whole = exp.paren(exp.Sub(this=micros.copy(), expression=rest))
        return _cast(exp.IntDiv(this=whole, expression=step.copy()), "DECIMAL(20, 0)")

    def _floor_of_double(self, node: Any, beyond: type[exp.Binary], back: type[exp.Binary]) -> exp.Expression:
        """Spark's is an integer, which infinity, NaN and large numbers are not. Of a double the nearest whole number
        is moved back by one where it is beyond the double."""
        kind, of = self._numbers.kind(node.this), node.this
        if kind == "integer":
            return _cast(of, "DOUBLE")
        if kind != "double":
            return cast(exp.Expression, node)
        near = exp.Anonymous(this="RINT", expressions=[of.copy()])
        moved = exp.paren(back(this=near.copy(), expression=exp.Literal.number(1)))
        over = exp.If(this=beyond(this=near.copy(), expression=exp.paren(of.copy())), true=moved)
        return _cast(exp.Case(ifs=[over], default=near), "DOUBLE")

    def _micros(self, of: Any) -> exp.Expression:
        at = of if self._numbers.kind(of) == "timestamptz" else _cast(of, "TIMESTAMPTZ")
        return exp.Anonymous(this="UNIX_MICROS", expressions=[at.copy()])

    def _moved(self, node: Any) -> exp.Expression:
        if isinstance(node.expression.unnest(), exp.Interval) and self._numbers.kind(node.this) == "date":
            return type(node)(this=_cast(node.this, "TIMESTAMPNTZ"), expression=node.expression)
        return node


def _cast(node: Any, to: str) -> exp.Expression:
    return exp.Cast(this=node.copy(), to=exp.DataType.build(to))


def is_moment(kind: Kind) -> bool:
    return kind == "date" or kind in TIMES
