"""Statements that differ only in literals have one shape, so that a plan can serve all of them (plan_template.py).

    SELECT n FROM t WHERE k = 7 AND s = 'x' LIMIT 10
    SELECT n FROM t WHERE k = <i0> AND s = <s1> LIMIT 10         parameters ("7", "x")

    SELECT n FROM t WHERE k = CAST('7' AS int) ::int             ... WHERE k = <I0>       in PostgreSQL's dialect

A literal is a parameter where it is compared with a name, on the right side of the comparison, and ends the expression.
All other literals stay in the shape: a limit, an ordinal, a pattern, an argument of a function. A value that occurs
several times is one parameter, and one that also occurs elsewhere is none, so that equality of literals is a part of
the shape too. The type of a parameter is that of its text: int, bigint or string.

In PostgreSQL's dialect so is a cast of a text, as tidemark-pgwire writes parameters of a type; its value is one of that
type, so that no cast fails. Statements of other dialects have no parameters. A dialect is a part of the shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_protocol.types import BIGINT, INT, INTEGRAL_WIDTH, STRING, SqlType

MAX_CHARACTERS = 16 * 1024
"""A longer statement is its own shape, without a search for literals, and its plan is not kept."""
SPARK, POSTGRES = "spark", "postgres"
SMALLINT = SqlType("smallint")
TYPES: dict[str, tuple[SqlType, ...]] = {
    "i": (INT, BIGINT),
    "l": (BIGINT,),
    "s": (STRING,),
    "H": (SMALLINT, INT, BIGINT),
    "I": (INT, BIGINT),
    "L": (BIGINT,),
    "S": (STRING,),
}
"""The types that a parameter of each kind may have in a plan: an int is widened where the column is a bigint. The kinds
of casts are upper case."""
_REST = r"""|(?P<number>[0-9]+)(?![\w.])|(?P<word>\w+)|(?P<comparison><=>|<=|>=|<>|!=|==|[=<>])|(?P<other>.)"""
_TOKENS = {
    SPARK: re.compile(rf"""(?P<space>\s+)|'(?P<text>[^']*)'|(?P<quoted>`[^`]*`){_REST}""", re.VERBOSE | re.DOTALL),
    POSTGRES: re.compile(
        rf"""(?P<space>\s+)|'(?P<text>(?:[^']|'')*+)'|(?P<quoted>"[^"]*")
        |(?P<cast>CAST\('(?P<value>(?:[^']|'')*+)'[ ]AS[ ](?P<type>smallint|int|bigint|text)\)
          (?:\s*::\s*(?P<again>(?i:int2|smallint|int4|int|integer|int8|bigint|text))\b)?){_REST}""",
        re.VERBOSE | re.DOTALL,
    ),
}
# signs that make the borders of literals, or their values, more than this reads
_NOT_READ = {SPARK: re.compile(r'["\\$\0]|--|/\*'), POSTGRES: re.compile(r"[\\$\0]|--|/\*")}
_CASTS = {
    **dict.fromkeys(("smallint", "int2"), ("H", SMALLINT)),
    **dict.fromkeys(("int", "int4", "integer"), ("I", INT)),
    **dict.fromkeys(("bigint", "int8"), ("L", BIGINT)),
    "text": ("S", STRING),
}
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
# constructs in which the planner compares literals with each other, or reads them as numbers of rows
_READS_LITERALS = frozenset(("case", "decode", "if", "iff", "over", "qualify"))
_NOT_NAMES = frozenset(("and", "between", "end", "false", "in", "is", "like", "not", "null", "or", "true"))
_ENDS = frozenset(("and", "or", "group", "having", "order", "limit", "union", "except", "intersect"))
_Token = re.Match[str]


@dataclass(frozen=True)
class StatementShape:
    """`text`: the statement with parameters replaced, in `dialect`. `kinds` (keys of TYPES) and `values` (canonical):
    of each parameter."""

    text: str
    kinds: str = ""
    values: tuple[str, ...] = ()
    dialect: str = SPARK

    @staticmethod
    def of(sql: str, dialect: str = SPARK) -> StatementShape:
        """Return the shape of a statement. The shape has no parameters where the borders of literals are uncertain."""
        whole = StatementShape(sql, dialect=dialect)
        if len(sql) > MAX_CHARACTERS or dialect not in _TOKENS or _NOT_READ[dialect].search(sql):
            return whole
        tokens = [token for token in _TOKENS[dialect].finditer(sql) if token.lastgroup != "space"]
        if any(t.lastgroup == "word" and t[0].lower() in _READS_LITERALS for t in tokens):
            return whole
        found = dict(_parameters(tokens))
        return _parameterised(sql, dialect, found) if found else whole


def _parameterised(sql: str, dialect: str, found: dict[tuple[int, int], tuple[str, str]]) -> StatementShape:
    """`found`: kind and value of the parameters by their span, in order."""
    distinct = list(dict.fromkeys(found.values()))
    pieces, end = list[str](), 0
    for (start, stop), parameter in found.items():
        pieces += (sql[end:start], f"\0{parameter[0]}{distinct.index(parameter)}\0")
        end = stop
    kinds = "".join(kind for kind, _ in distinct)
    return StatementShape("".join((*pieces, sql[end:])), kinds, tuple(value for _, value in distinct), dialect)


def _parameters(tokens: list[_Token]) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    compared = [(at, literal) for at, token in enumerate(tokens) if (literal := _literal(token))]
    elsewhere = {literal for at, literal in compared if not _is_compared(tokens, at)}
    for at, literal in compared:
        if literal not in elsewhere:
            yield tokens[at].span(), literal


def _literal(token: _Token) -> tuple[str, str] | None:
    """Kind and canonical value of a literal."""
    if token.lastgroup == "text":
        return "s", token["text"].replace("''", "'")
    if token.lastgroup == "cast":
        return _cast(token["value"], token["type"], token["again"] or token["type"])
    if token.lastgroup == "number" and (value := int(token[0])) < 1 << 63:
        return ("i" if value < 1 << 31 else "l"), str(value)
    return None


def _cast(text: str, first: str, last: str) -> tuple[str, str] | None:
    """Kind and value of a text that is cast to one type and then to another one, both of which have the value."""
    (_, inner), (kind, of) = _CASTS[first], _CASTS[last.lower()]
    if inner == of == STRING:
        return kind, text.replace("''", "'")
    if STRING in (inner, of) or _INTEGER.fullmatch(text) is None:
        return None
    value, bound = int(text), 1 << (min(INTEGRAL_WIDTH[inner.name], INTEGRAL_WIDTH[of.name]) - 1)
    return (kind, str(value)) if -bound < value < bound else None


def _is_compared(tokens: list[_Token], at: int) -> bool:
    """Whether the token before is a comparison with a name, and the expression ends after this one."""
    if at < 2 or tokens[at - 1].lastgroup != "comparison":
        return False
    name, after = tokens[at - 2], tokens[at + 1] if at + 1 < len(tokens) else None
    is_name = name.lastgroup == "quoted" or (name.lastgroup == "word" and name[0].lower() not in _NOT_NAMES)
    return is_name and (after is None or after[0] in (")", ";") or after[0].lower() in _ENDS)
