"""Literal lookups on an index, recognised without the planner.

    SELECT carrier, flights FROM delays WHERE carrier = 'DL' LIMIT 10

    statement := SELECT (* | column, ...) FROM [a.]b WHERE column = literal [AND ...] [LIMIT n] [;]

The columns of the filter are those of the index's key, each once; literals are integers for int and bigint columns, and
plain strings for string columns. Names are written as the catalogue has them, so that results are named as the planner
would name them. Whatever is written in any other way goes to the planner, which answers alike: this is a short cut for
one shape, never another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Finishing, PlannedPeek, Relation
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import INTEGRAL_WIDTH, Column, ColumnType, SqlType

LONGEST = 4096
LIMIT_MOST = 2**31 - 1
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>[^`]+)`|(?P<number>-?[0-9]{1,19})(?![\w.])
    |'(?P<text>[^'\\$]*)'|(?P<mark>[*,.=;]))""",
    re.VERBOSE,
)
# words that SQL takes for something else where a column may stand
_NOT_NAMES = frozenset(
    """all and any array as between by case cast current_date current_path current_time current_timestamp current_user
    date distinct else end except exists false from group having in intersect interval is join like limit localtime
    localtimestamp map minus named_struct not null offset or order select session_user some struct table then timestamp
    timestamp_ltz timestamp_ntz top transform true union user values when where with""".split()
)
Tokens = list[tuple[str, str]]


@dataclass(frozen=True)
class Names:
    """The relations that a name can only mean, by its parts in lower case."""

    relations: Mapping[tuple[str, ...], Relation]

    @staticmethod
    def of(catalogue: Catalogue) -> Names:
        meanings: dict[tuple[str, ...], list[Relation]] = {}
        for relation in catalogue.relations:
            parent = relation.parent.lower()
            meanings.setdefault((parent, relation.name.lower()), []).append(relation)
            if relation.short:
                meanings.setdefault((parent,), []).append(relation)
        return Names({name: found[0] for name, found in meanings.items() if len(found) == 1})


def recognised(sql: str, names: Names) -> PlannedPeek | None:
    """The peek that the planner would answer with, but for a filter that the lookup makes needless; None for any
    statement that is not surely a lookup."""
    tokens = _tokens(sql)
    if tokens is None:
        return None
    read = _Reader(tokens)
    try:
        return _lookup(read, names)
    except _OtherStatement:
        return None


class _OtherStatement(Exception):
    """Not a lookup: the planner's business."""


def _lookup(read: _Reader, names: Names) -> PlannedPeek:
    read.keyword("select")
    shown = None if read.accepts("*") else read.columns()
    read.keyword("from")
    relation = names.relations.get(read.relation())
    if relation is None or not relation.index_key:
        raise _OtherStatement
    read.keyword("where")
    positions = {column.name: at for at, column in enumerate(relation.columns)}
    key = _key(read, relation, positions)
    limit = read.limit()
    read.end()
    whole = tuple(range(len(relation.columns)))
    projection = whole if shown is None else tuple(_at(positions, c) for c in shown)
    columns = tuple(relation.columns[at] for at in projection)
    schema = tuple(ColumnType(c.type, c.nullable) for c in relation.columns)
    mfp = MapFilterProject(schema, projection=None if projection == whole else projection)
    return PlannedPeek(GlobalId(relation.id), mfp, Finishing(limit=limit), columns, (key,))


def _key(read: _Reader, relation: Relation, positions: Mapping[str, int]) -> tuple[Literal, ...]:
    """The values of the index key: each of its columns compared once, and no other."""
    wanted = relation.index_key or ()
    values: dict[int, Literal] = {}
    while True:
        at = _at(positions, read.name())
        if at in values or at not in wanted:
            raise _OtherStatement
        read.mark("=")
        values[at] = _literal(read, relation.columns[at])
        if not read.accepts("and"):
            break
    if len(values) != len(set(wanted)):
        raise _OtherStatement
    return tuple(values[at] for at in wanted)


def _literal(read: _Reader, column: Column) -> Literal:
    """The value as the planner writes it; a number that does not fit the column widens the comparison: not here."""
    kind, value = read.next()
    if kind == "number" and column.type.name in ("int", "bigint") and _fits(int(value), column.type):
        return Literal(str(int(value)), column.type)
    if kind == "text" and column.type.name == "string":
        return Literal(value, column.type)
    raise _OtherStatement


def _fits(value: int, of: SqlType) -> bool:
    bound = 1 << (INTEGRAL_WIDTH[of.name] - 1)
    return -bound < value < bound  # the least of all is written as the negative of a number that does not fit


def _at(positions: Mapping[str, int], name: str) -> int:
    if name not in positions:
        raise _OtherStatement
    return positions[name]


def _tokens(sql: str) -> Tokens | None:
    """Words and marks; None where there is anything else, such as a comment."""
    if len(sql) > LONGEST:
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
    """The tokens, one after the other; raises _OtherStatement where another one stands."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens, self._at = tokens, 0

    def next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise _OtherStatement
        self._at += 1
        return self._tokens[self._at - 1]

    def accepts(self, text: str) -> bool:
        """Whether this keyword or mark comes next; then it is read."""
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
        if kind != "number" or not 0 <= int(value) <= LIMIT_MOST:
            raise _OtherStatement
        return int(value)

    def end(self) -> None:
        self.accepts(";")
        if self._at != len(self._tokens):
            raise _OtherStatement
