"""Plain SELECTs over one index, view or table, recognised without the planner.

    SELECT carrier, flights FROM delays WHERE carrier = 'DL' LIMIT 10

    statement := SELECT (* | column, ...) FROM [a.]b [WHERE column = literal [AND ...]] [LIMIT n] [;]

The filter compares a column once. Literals are integers for int and bigint columns, and plain strings for string
columns. A filter that compares each column of an index's key is a lookup. Names must be written as in the catalogue, so
that the columns of the result have the names that the planner would give them. Every other text goes to the planner:
this is a shortcut for one form of statement, which is answered while the planner is away too, and its plan is the
planner's (tests/planner/test_plain_selects_agree.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Finishing, PlannedPeek, Relation
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import BOOLEAN, INTEGRAL_WIDTH, Column, ColumnType, SqlType

MAX_CHARACTERS = 4096
MAX_LIMIT = 2**31 - 1
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>[^`]+)`|(?P<number>-?[0-9]{1,19})(?![\w.])
    |'(?P<text>[^'\\$]*)'|(?P<mark>[*,.=;]))""",
    re.VERBOSE,
)
# words that have another meaning than a column in SQL
_NOT_NAMES = frozenset(
    """all and any array as between by case cast current_date current_path current_time current_timestamp current_user
    date distinct else end except exists false from group having in intersect interval is join like limit localtime
    localtimestamp map minus named_struct not null offset or order select session_user some struct table then timestamp
    timestamp_ltz timestamp_ntz top transform true union user values when where with""".split()
)
Tokens = list[tuple[str, str]]


@dataclass(frozen=True)
class RelationNames:
    """The relations that a name means without ambiguity, by the name's parts in lower case."""

    relations: Mapping[tuple[str, ...], Relation]

    @staticmethod
    def of(catalogue: Catalogue) -> RelationNames:
        meanings: dict[tuple[str, ...], list[Relation]] = {}
        for relation in catalogue.relations:
            parent = relation.parent.lower()
            meanings.setdefault((parent, relation.name.lower()), []).append(relation)
            if relation.short:
                meanings.setdefault((parent,), []).append(relation)
        return RelationNames({name: found[0] for name, found in meanings.items() if len(found) == 1})


def recognise(sql: str, names: RelationNames) -> PlannedPeek | None:
    """The planner's peek for a plain SELECT; None for every other statement."""
    tokens = _tokens(sql)
    if tokens is None:
        return None
    read = _Reader(tokens)
    try:
        return _select(read, names)
    except _OtherStatement:
        return None


class _OtherStatement(Exception):
    """The statement is no plain SELECT; the planner plans it."""


def _select(read: _Reader, names: RelationNames) -> PlannedPeek:
    read.keyword("select")
    shown = None if read.accepts("*") else read.columns()
    read.keyword("from")
    relation = names.relations.get(read.relation())
    if relation is None:
        raise _OtherStatement
    positions = _positions(relation)
    equal = _equalities(read, relation, positions) if read.accepts("where") else {}
    limit = read.limit()
    read.end()
    whole = tuple(range(len(relation.columns)))
    projection = whole if shown is None else tuple(_column_position(positions, c) for c in shown)
    columns = tuple(relation.columns[at] for at in projection)
    schema = tuple(ColumnType(c.type, c.nullable) for c in relation.columns)
    key = relation.index_key or ()
    literals = (tuple(equal[at] for at in key),) if key and equal.keys() >= set(key) else None
    filtered = [at for at in equal if literals is None or at not in key]
    predicates = tuple(_equality(relation.columns[at], at, equal[at]) for at in filtered)
    mfp = MapFilterProject(schema, predicates=predicates, projection=None if projection == whole else projection)
    return PlannedPeek(GlobalId(relation.id), mfp, Finishing(limit=limit), columns, literals)


def _positions(relation: Relation) -> dict[str, int]:
    """The positions of the columns by name. Names that only their case tells apart are ambiguous in SQL."""
    positions = {column.name: at for at, column in enumerate(relation.columns)}
    if len({name.lower() for name in positions}) < len(relation.columns):
        raise _OtherStatement
    return positions


def _equalities(read: _Reader, relation: Relation, positions: Mapping[str, int]) -> dict[int, Literal]:
    """The values that the filter demands, by the columns' positions; raises _OtherStatement where one is compared
    twice."""
    values: dict[int, Literal] = {}
    while True:
        at = _column_position(positions, read.name())
        if at in values:
            raise _OtherStatement
        read.mark("=")
        values[at] = _literal(read, relation.columns[at])
        if not read.accepts("and"):
            return values


def _equality(column: Column, at: int, value: Literal) -> ScalarExpr:
    return call("=", (ColumnRef(at, column.type, column.nullable), value), BOOLEAN)


def _literal(read: _Reader, column: Column) -> Literal:
    """The value in the planner's form. A number that does not fit the column would widen the comparison: refused."""
    kind, value = read.next()
    if kind == "number" and column.type.name in ("int", "bigint") and _fits(int(value), column.type):
        return Literal(str(int(value)), column.type)
    if kind == "text" and column.type.name == "string":
        return Literal(value, column.type)
    raise _OtherStatement


def _fits(value: int, of: SqlType) -> bool:
    bound = 1 << (INTEGRAL_WIDTH[of.name] - 1)
    return -bound < value < bound  # SQL reads the least value as the negative of a number that does not fit


def _column_position(positions: Mapping[str, int], name: str) -> int:
    """The position of the column of this name. Raises _OtherStatement where there is none."""
    if name not in positions:
        raise _OtherStatement
    return positions[name]


def _tokens(sql: str) -> Tokens | None:
    """Words, literals and punctuation; None for a text with anything else, such as a comment."""
    if len(sql) > MAX_CHARACTERS:
        return None
    found, at, text = Tokens(), 0, sql.rstrip(" \t\r\n")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            return None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Reader:
    """Reads the tokens in order; every method raises _OtherStatement for an unexpected token."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens, self._at = tokens, 0

    def next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise _OtherStatement
        self._at += 1
        return self._tokens[self._at - 1]

    def accepts(self, text: str) -> bool:
        """Whether this keyword or punctuation comes next; it is consumed then."""
        if self._at < len(self._tokens):
            kind, value = self._tokens[self._at]
            if kind in ("word", "mark") and value.lower() == text:
                self._at += 1
                return True
        return False

    def keyword(self, text: str) -> None:
        if not self.accepts(text):
            raise _OtherStatement

    mark = keyword

    def name(self) -> str:
        kind, value = self.next()
        if kind == "quoted" or (kind == "word" and value.lower() not in _NOT_NAMES):
            return value
        raise _OtherStatement

    def columns(self) -> list[str]:
        found = [self.name()]
        while self.accepts(","):
            found.append(self.name())
        return found

    def relation(self) -> tuple[str, ...]:
        first = self.name().lower()
        return (first, self.name().lower()) if self.accepts(".") else (first,)

    def limit(self) -> int | None:
        if not self.accepts("limit"):
            return None
        kind, value = self.next()
        if kind != "number" or not 0 <= int(value) <= MAX_LIMIT:
            raise _OtherStatement
        return int(value)

    def end(self) -> None:
        self.accepts(";")
        if self._at != len(self._tokens):
            raise _OtherStatement
