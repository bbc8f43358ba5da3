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
_SPACE = r"[ \t\r\n]*+"
_NAME = r"(?:[A-Za-z_]\w*+|`[^`]+`)"
_VALUE = r"(?:-?[0-9]{1,19}+(?![\w.])|'[^'\\$]*+')"
_STATEMENT = re.compile(
    rf"""~select\b~(?P<shown>\*|{_NAME}(?:~,~{_NAME})*+)~from\b~(?P<relation>{_NAME}(?:~\.~{_NAME})?+)
    (?:~where\b~(?P<filter>{_NAME}~=~{_VALUE}(?:~and\b~{_NAME}~=~{_VALUE})*+))?+
    (?:~limit\b~(?P<limit>[0-9]{{1,19}}+(?![\w.])))?+~;?~""".replace("~", _SPACE),
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_NAMES = re.compile(_NAME, re.ASCII)
_EQUALITIES = re.compile(rf"({_NAME}){_SPACE}={_SPACE}({_VALUE})", re.ASCII)
# words that have another meaning than a column in SQL
_NOT_NAMES = frozenset(
    """all and any array as between by case cast current_date current_path current_time current_timestamp current_user
    date distinct else end except exists false from group having in intersect interval is join like limit localtime
    localtimestamp map minus named_struct not null offset or order select session_user some struct table then timestamp
    timestamp_ltz timestamp_ntz top transform true union user values when where with""".split()
)


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
    found = _STATEMENT.fullmatch(sql) if len(sql) <= MAX_CHARACTERS else None
    try:
        return None if found is None else _select(found, names)
    except _OtherStatement:
        return None


class _OtherStatement(Exception):
    """The statement is no plain SELECT; the planner plans it."""


def _select(statement: re.Match[str], names: RelationNames) -> PlannedPeek:
    shown = None if statement["shown"] == "*" else _names(statement["shown"])
    relation = names.relations.get(tuple(name.lower() for name in _names(statement["relation"])))
    limit = None if statement["limit"] is None else int(statement["limit"])
    if relation is None or (limit is not None and limit > MAX_LIMIT):
        raise _OtherStatement
    positions = _positions(relation)
    equal = _equalities(statement["filter"] or "", relation, positions)
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


def _names(text: str) -> list[str]:
    """The names in a part of the statement, without quotes; raises _OtherStatement for a word that is none."""
    found = _NAMES.findall(text)
    if not _NOT_NAMES.isdisjoint(name.lower() for name in found):
        raise _OtherStatement
    return [name.strip("`") for name in found]


def _equalities(text: str, relation: Relation, positions: Mapping[str, int]) -> dict[int, Literal]:
    """The values that the filter demands, by the columns' positions; raises _OtherStatement where one is compared
    twice."""
    values: dict[int, Literal] = {}
    for quoted, value in _EQUALITIES.findall(text):
        (name,) = _names(quoted)
        at = _column_position(positions, name)
        if at in values:
            raise _OtherStatement
        values[at] = _literal(value, relation.columns[at])
    return values


def _equality(column: Column, at: int, value: Literal) -> ScalarExpr:
    return call("=", (ColumnRef(at, column.type, column.nullable), value), BOOLEAN)


def _literal(value: str, column: Column) -> Literal:
    """The value in the planner's form. A number that does not fit the column would widen the comparison: refused."""
    if value.startswith("'"):
        if column.type.name == "string":
            return Literal(value[1:-1], column.type)
    elif column.type.name in ("int", "bigint") and _fits(int(value), column.type):
        return Literal(str(int(value)), column.type)
    raise _OtherStatement


def _fits(value: int, of: SqlType) -> bool:
    bound = 1 << (INTEGRAL_WIDTH[of.name] - 1)
    return -bound < value < bound  # SQL reads the least value as the negative of a number that does not fit


def _column_position(positions: Mapping[str, int], name: str) -> int:
    """The position of the column of this name. Raises _OtherStatement where there is none."""
    if name not in positions:
        raise _OtherStatement
    return positions[name]
