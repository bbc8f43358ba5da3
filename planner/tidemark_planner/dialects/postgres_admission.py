"""The allow-list of PostgreSQL's dialect: that of all compared dialects, and dates and times, which depend on a zone.

    type               is                  of a session in another zone than UTC
    timestamp          TIMESTAMP_NTZ       as in UTC
    timestamptz        TIMESTAMP           literals are read in the zone; what depends on its days is refused

Spark reads times and begins days in UTC: in another zone a cast, date_trunc, extract and days that are added to a
timestamptz are others. typed_check.py refuses those that the names of columns do not tell.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokens import TokenType

from tidemark_planner.dialects.admission import ADMITTED, NUMBERS, ComparedCheck, words
from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.number_kinds import TIMES, Kind, Numbers, Tables
from tidemark_planner.dialects.postgres_times import (
    COMPARISONS,
    TRUNCATED,
    epoch_step,
    is_epoch,
    is_moment,
    is_text,
)
from tidemark_planner.dialects.session_dialect import POSTGRES, SessionDialect
from tidemark_planner.dialects.time_texts import NoTime, is_time, timestamp_of, timestamptz_of

_CONSTRUCTS = {**ADMITTED, "TimestampTrunc": frozenset({"this", "unit"})}
_MOMENTS = ("TIMESTAMP", "TIMESTAMPTZ")
_OF_A_DAY = frozenset({"HOUR", "MINUTE", "SECOND"})
_PATTERNS = (exp.Like, exp.ILike, exp.Replace, exp.StrPosition, exp.StartsWith)
_READS_TEXT = (exp.Cast, exp.DPipe, exp.Concat, *_PATTERNS)
_OF_TEXTS = (*_PATTERNS, exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring)
_SORTS: dict[Kind, str] = {**dict.fromkeys(NUMBERS, "number"), **dict.fromkeys(("date", *TIMES), "time")}
"""Kinds whose values PostgreSQL compares with each other; others are of a sort of their own."""
_MAX_INTERVAL_DIGITS = 6
_CAST_LITERAL = re.compile(r"'\s*::")
_REAL = re.compile(r"-?(?:\d+(?:[.]\d*)?|[.]\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)


def check_postgres(sql: str, tree: exp.Expression, dialect: SessionDialect, tables: Tables) -> None:
    """Raises NotTranslated unless every part of the tree of the text is known to mean the same in Spark."""
    _check_typed_literals(sql)
    check = _Postgres(dialect, Numbers(tables, tree, dialect.name), "date_part" in sql.lower())
    for node in tree.walk():
        check(node)


def _check_typed_literals(sql: str) -> None:
    """sqlglot reads `date '2024-01-31'::text` as `date ('2024-01-31'::text)`."""
    if _CAST_LITERAL.search(sql) is None:
        return
    tokens = sqlglot.tokenize(sql, read=POSTGRES)
    for before, literal, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_cast = literal.token_type == TokenType.STRING and after.token_type == TokenType.DCOLON
        if is_cast and (before.token_type in Parser.TYPE_TOKENS or before.text.upper() == "ZONE"):
            raise NotTranslated(f"a cast of {before.text} '...' is read in two ways: write it in parentheses")


class _Postgres(ComparedCheck):
    units = frozenset(f"{unit}{s}" for unit in "DAY HOUR MINUTE SECOND MONTH YEAR WEEK".split() for s in ("", "S"))
    types = frozenset((*ComparedCheck.types, *_MOMENTS, "VARBINARY", "FLOAT"))

    def __init__(self, dialect: SessionDialect, numbers: Numbers, has_date_part: bool) -> None:
        super().__init__(dialect.name, numbers, _CONSTRUCTS)
        self._dialect, self._has_date_part = dialect, has_date_part
        self.own |= {
            **dict.fromkeys((*COMPARISONS, exp.Between), self._compared),
            **dict.fromkeys(_OF_TEXTS, self._of_texts),
            **dict.fromkeys((exp.Floor, exp.Ceil), self._check_floor),
            **dict.fromkeys((exp.Min, exp.Max), self._extreme),
            exp.In: self._listed,
            exp.Mod: self._remainder,
            exp.Sum: self._total,
            exp.Cast: self._cast,
            exp.CurrentDate: self._today,
            exp.Extract: self._extract,
            exp.Literal: self._literal,
            exp.TimestampTrunc: self._truncated,
        }

    def _in_zone(self, what: str, node: Any) -> None:
        """Refuse what depends on the days of the session's zone."""
        if not self._dialect.in_utc:
            raise self.refused(f"{what} in the time zone {self._dialect.zone} (SET TimeZone = 'UTC')", node)

    def sum(self, node: Any) -> None:
        right, kind = node.expression.unnest(), self.numbers.kind(node.this)
        if not isinstance(right, exp.Interval) or not is_moment(kind):
            super().sum(node)
        elif kind == "timestamptz" and right.args["unit"].name.upper().rstrip("S") not in _OF_A_DAY:
            self._in_zone("days added to a timestamptz", node)

    def _compared(self, node: Any) -> None:
        """PostgreSQL compares values of two sorts with no operator, where Spark casts one of them."""
        sides = [node.this, *(node.args.get(name) for name in ("expression", "low", "high")), *node.expressions]
        typed = [each for each in sides if each is not None and not is_text(each) and not isinstance(each, exp.Null)]
        kinds = [kind for kind in map(self.numbers.kind, typed) if kind is not None]
        if len({_SORTS.get(kind, kind) for kind in kinds}) > 1:
            raise self.refused(f"a comparison of {words(kinds)} (cast one of them)", node)

    def _listed(self, node: Any) -> None:
        self.subquery_in(node)
        self._compared(node)

    def _of_texts(self, node: Any) -> None:
        given = [node.this, *(node.args.get(name) for name in ("expression", "replacement", "substr"))]
        kinds = [
            self.numbers.kind(each) for each in given if each is not None and not isinstance(each, exp.Null | exp.Any)
        ]
        taken = (None, "text", "bytes") if isinstance(node, exp.Length) else (None, "text")
        if known := [kind for kind in kinds if kind not in taken]:
            raise self.refused(f"{node.sql_name() if isinstance(node, exp.Func) else 'LIKE'} of {words(known)}", node)

    def _check_floor(self, node: Any) -> None:
        kind = self.numbers.kind(node.this)
        if kind not in NUMBERS and epoch_step(node.this) is None:
            raise self.refused(f"{node.sql_name().lower()} of {words([kind])} (cast it to double precision)", node)

    def _extreme(self, node: Any) -> None:
        if self.numbers.kind(node.this) in ("boolean", "bytes"):
            raise self.refused(f"{node.sql_name().lower()} of {words(self.kinds(node))}", node)

    def _total(self, node: Any) -> None:
        if self.numbers.kind(node.this) not in (None, *NUMBERS):
            raise self.refused(f"sum of {words(self.kinds(node))}", node)

    def _remainder(self, node: Any) -> None:
        self.numeric(node)
        if "double" in self.kinds(node):
            raise self.refused("% of double precision", node)

    def is_count(self, text: str) -> bool:
        digits = text.removeprefix("-")
        return digits.isascii() and digits.isdigit() and len(digits) <= _MAX_INTERVAL_DIGITS

    def quotient(self, node: Any) -> None:
        """The floor of a quotient is exact where the quotient is computed in microseconds."""
        above = node.parent
        while isinstance(above, exp.Paren):
            above = above.parent
        if not isinstance(above, exp.Floor) or epoch_step(node) is None:
            super().quotient(node)

    def _truncated(self, node: Any) -> None:
        kind, unit = self.numbers.kind(node.this), node.unit.name.upper()
        if unit not in TRUNCATED:
            raise self.refused(f"date_trunc of {unit.lower()}", node)
        if not is_moment(kind):
            raise self.refused(f"date_trunc of {words([kind])} (cast it to timestamp)", node)
        if kind != "timestamp":
            self._in_zone("date_trunc of a timestamptz", node)

    def _extract(self, node: Any) -> None:
        kind, part = self.numbers.kind(node.expression), node.this.name.upper()
        if self._has_date_part and part in ("SECOND", "EPOCH"):  # sqlglot reads both as extract
            raise self.refused("date_part of seconds, which are double precision (write extract),", node)
        needs_time = part in _OF_A_DAY or is_epoch(node)
        if not (is_moment(kind) or (kind is None and not needs_time)) or (part in _OF_A_DAY and kind == "date"):
            raise self.refused(f"extract of {part.lower()} from {words([kind])} (cast it to timestamp)", node)
        if kind == "timestamptz" and not is_epoch(node):
            self._in_zone("extract from a timestamptz", node)

    def _today(self, node: Any) -> None:
        self._in_zone("current_date", node)

    def _cast(self, node: Any) -> None:
        to, kind = getattr(node.to.this, "value", ""), self.numbers.kind(node.this)
        text = node.this.this if is_text(node.this) else None
        is_null = isinstance(node.this, exp.Null)
        if kind in TIMES and to not in (*_MOMENTS, "DATE"):
            raise self.refused(f"a cast of {kind} to {node.to.sql('postgres').lower()}", node)
        if to in _MOMENTS and not node.to.expressions:
            self._moment(node, to, kind, text)
        elif to == "VARBINARY" and not is_null and not _is_hexadecimal(text):
            raise self.refused(r"bytes that are not written as '\x00ff'", node)
        elif to == "FLOAT" and not is_null and not _is_real(text):
            raise self.refused("a cast to real of other than a text of its digits", node)
        elif to in ("VARBINARY", "FLOAT") and not _is_compared(node):
            raise self.refused(f"a cast to {node.to.sql('postgres').lower()} that is not compared with a value", node)
        else:
            self.cast(node)
        if to == "DATE" and kind == "timestamptz":
            self._in_zone("a cast of timestamptz to date", node)

    def _moment(self, node: Any, to: str, kind: Kind, text: str | None) -> None:
        if text is not None:
            try:
                timestamp_of(text) if to == "TIMESTAMP" else timestamptz_of(text, self._dialect.zone)
            except NoTime as error:
                raise self.refused(str(error), node) from None
        elif isinstance(node.this, exp.Null):
            return
        elif not is_moment(kind):
            raise self.refused(f"a cast of {words([kind])} to {node.to.sql('postgres').lower()}", node)
        elif (to == "TIMESTAMPTZ") != (kind == "timestamptz"):
            self._in_zone(f"a cast of {kind} to {node.to.sql('postgres').lower()}", node)

    def _literal(self, node: Any) -> None:
        """Refuse texts of times in another zone than UTC, as Spark would read all of them in UTC. In UTC typed_check.py
        refuses those that Spark reads in another way."""
        self.literal(node)
        if not is_text(node) or self._dialect.in_utc or not is_time(node.this) or isinstance(node.parent, _READS_TEXT):
            return
        beside = [node.parent.this, node.parent.args.get("expression")]
        kinds = {self.numbers.kind(each) for each in beside if each is not None and each is not node}
        if not isinstance(node.parent, (*COMPARISONS, exp.Between, exp.In)) or not kinds <= {"text", "date"}:
            self._in_zone("a time without a type (cast it to timestamptz)", node)


def _is_compared(node: Any) -> bool:
    """Whether the node is a side of a comparison with other than a text. In lists, CASE and the like PostgreSQL makes
    the values beside it reals or bytes, and Spark does not."""
    side = node
    while isinstance(side.parent, exp.Paren):
        side = side.parent
    if isinstance(side.parent, exp.Is):
        return True
    if not isinstance(side.parent, COMPARISONS):
        return False
    sides = (side.parent.this, side.parent.args.get("expression"))
    return all(each is side or (each is not None and not is_text(each.unnest())) for each in sides)


def _is_hexadecimal(text: str | None) -> bool:
    if text is None or not text.startswith("\\x"):
        return False
    digits = text[2:]
    return len(digits) % 2 == 0 and all(digit in "0123456789abcdefABCDEF" for digit in digits)


def _is_real(text: str | None) -> bool:
    """Whether a text is a number that a real has, or one of its other values."""
    if text in ("NaN", "Infinity", "-Infinity"):
        return True
    if text is None or _REAL.fullmatch(text) is None:
        return False
    try:
        found = struct.unpack("!f", struct.pack("!f", float(text)))[0]
    except OverflowError:
        return False
    return found != 0 or not re.search("[1-9]", text.lower().partition("e")[0])
