"""The subject of a query: users' relations, which the gateway reads, or the session and the catalogue.

    relations of FROM and JOIN    a system relation ──► the catalogue's; another ──► the gateway's
    none                          literals and functions about the session ──► the session's
                                  a function about the catalogue ──► the catalogue's; whatever else ──► the gateway's

Only the lexer reads the text, so that the event loop may ask this of each statement. A query that mixes both kinds is
the catalogue's, which refuses it. In Spark's dialect a text without relations has other values than PostgreSQL's, so
that fewer are answered here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from tidemark_pgwire.catalogue.show_statement import setting_of_show
from tidemark_pgwire.catalogue.sql.functions import FUNCTIONS
from tidemark_pgwire.catalogue.sql.session_functions import SESSION_FUNCTIONS
from tidemark_pgwire.catalogue.sql.statement import TEXT_MAX
from tidemark_pgwire.catalogue.system_relations import PG_CATALOG, is_system, table_functions
from tidemark_pgwire.catalogue.types import REGISTERED
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.statements.lexer import POSTGRES, Token, significant


class StatementSubject(Enum):
    ROWS = "users' relations: the gateway answers"
    SESSION = "the session: no relation of a user matters"
    CATALOGUE = "the catalogue: the user's relations are listed"


SHORT = 2_000
"""Characters of a statement about the session, at most."""
_SYSTEM_WORD = re.compile(r"\bpg_|\binformation_schema\b", re.IGNORECASE)
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,9}")
_CLAUSES = frozenset(
    "WHERE GROUP HAVING ORDER LIMIT OFFSET FETCH WINDOW UNION EXCEPT INTERSECT FOR SELECT ON USING VALUES".split()
)
"""Words after which a comma names no relation."""
_GENERAL = frozenset(
    "age array_append array_cat array_length array_lower array_ndims array_position array_remove array_to_string "
    "array_upper cardinality every format json_build_object octet_length pg_typeof quote_ident quote_literal "
    "string_to_array".split()
)
_OF_CATALOGUE = (FUNCTIONS.keys() | table_functions().keys()) - _GENERAL
"""Functions that have no meaning but about a catalogue."""
_TIMES = frozenset("clock_timestamp now statement_timestamp transaction_timestamp".split())
_AROUND = frozenset(("array_to_string", "quote_ident"))
_CONSTANTS = frozenset(("NULL", "TRUE", "FALSE"))
_WITHOUT_PARENTHESES = frozenset("CURRENT_CATALOG CURRENT_ROLE CURRENT_SCHEMA CURRENT_USER SESSION_USER USER".split())
_OPERATORS = frozenset(("IS", "NOT", "AND", "OR", "=", "<", ">", "!", "/"))
_TYPES = frozenset(("text", "varchar", "name", "int", "integer", "int2", "int4", "int8", "bigint", "smallint", "oid"))
_VALUES = ("number", "text", "name", "parameter")


@lru_cache(maxsize=64)
def subject_of(text: str, dialect: str) -> StatementSubject:
    """The subject of a statement that is one query, or a SHOW of a setting."""
    if setting_of_show(text):
        return StatementSubject.SESSION
    about_system = _SYSTEM_WORD.search(text) is not None
    if len(text) > (TEXT_MAX if about_system else SHORT) or (_FROM.search(text) and not about_system):
        return StatementSubject.ROWS
    try:
        found = significant(text, POSTGRES)
    except WireError:
        return StatementSubject.ROWS
    first = next((token.word for token in found if token.text != "("), "")
    if first not in ("SELECT", "WITH"):
        return StatementSubject.ROWS
    relations = _relations(found)
    if relations:
        return (
            StatementSubject.CATALOGUE if any(is_system(*relation) for relation in relations) else StatementSubject.ROWS
        )
    if dialect != POSTGRES and any(token.kind == "text" and "\\" in token.text for token in found):
        return StatementSubject.ROWS
    if any(_is_of_catalogue(found, place, dialect) for place in range(len(found))):
        return StatementSubject.CATALOGUE
    return _of_session(found, dialect)


def _text(found: Sequence[Token], place: int) -> str:
    return found[place].text if 0 <= place < len(found) else ""


def _is_name(found: Sequence[Token], place: int) -> bool:
    return 0 <= place < len(found) and found[place].kind in ("word", "name")


def _called(found: Sequence[Token], place: int) -> str:
    """The function whose name stands there, if one does that pg_catalog or no schema has."""
    if not _is_name(found, place) or _text(found, place + 1) != "(":
        return ""
    if _text(found, place - 1) == "." and not (place > 1 and found[place - 2].identifier == PG_CATALOG):
        return ""
    return found[place].identifier


def _is_of_catalogue(found: Sequence[Token], place: int, dialect: str) -> bool:
    """Whether a function of the catalogue is called there, or a text becomes a `regclass` or the like."""
    name = _called(found, place)
    if dialect == POSTGRES:
        cast = _text(found, place - 1) == ":" or _text(found, place - 1) == "."
        return name in _OF_CATALOGUE or (cast and found[place].identifier in REGISTERED)
    return name in _OF_CATALOGUE and (name.startswith("pg_") or _text(found, place - 1) == ".")


@dataclass
class _Level:
    """One level of parentheses. `selects`: a query stands in it. `names`: a comma is followed by a relation."""

    selects: bool = False
    names: bool = False


@dataclass
class _Reader:
    """Reads the relations after FROM and JOIN."""

    found: Sequence[Token]
    levels: list[_Level] = field(default_factory=lambda: [_Level()])
    relations: list[tuple[str, str]] = field(default_factory=list)

    def read(self) -> None:
        expected = False  # a relation, or a parenthesis around some
        for place, token in enumerate(self.found):
            word, level = token.word, self.levels[-1]
            if token.text == "(":
                self.levels.append(_Level(selects=expected, names=expected))
                continue
            if token.text == ")":
                if len(self.levels) > 1:
                    self.levels.pop()
                expected = False
            elif token.text == ",":
                expected = level.names
            elif word in ("FROM", "JOIN") and level.selects and not self._is_of_distinct(place):
                expected = level.names = True
            elif word in _CLAUSES:
                level.selects |= word in ("SELECT", "VALUES")
                level.names = expected = False
            elif expected and word not in ("LATERAL", "ONLY", "WITH") and _is_name(self.found, place):
                self._add(place)
                expected = False

    def _is_of_distinct(self, place: int) -> bool:
        """`IS DISTINCT FROM`."""
        return self.found[place - 1].word == "DISTINCT" and self.found[place - 2].word in ("IS", "NOT")

    def _add(self, place: int) -> None:
        parts = [self.found[place].identifier]
        while _text(self.found, place + 1) == "." and _is_name(self.found, place + 2):
            place += 2
            parts.append(self.found[place].identifier)
        if _text(self.found, place + 1) != "(":
            self.relations.append((parts[-2] if len(parts) > 1 else "", parts[-1]))


def _relations(found: Sequence[Token]) -> list[tuple[str, str]]:
    """Schema and name of each, without those of WITH."""
    reader = _Reader(found)
    reader.read()
    named = _names_of_with(found)
    return [(schema, name) for schema, name in reader.relations if schema or name not in named]


def _names_of_with(found: Sequence[Token]) -> frozenset[str]:
    """`NAME AS (` and `NAME (COLUMN, ...) AS (`, where a query is in WITH."""
    if not any(token.word == "WITH" for token in found):
        return frozenset()
    names, opened, before = set[str](), list[int](), -1
    for place, token in enumerate(found):
        if token.text == "(":
            opened.append(place)
        elif token.text == ")":
            before = opened.pop() - 1 if opened else -1
        elif token.word == "AS":
            after = place + 1
            while after < len(found) and found[after].word in ("NOT", "MATERIALIZED"):
                after += 1
            named = before if _text(found, place - 1) == ")" else place - 1
            if _text(found, after) == "(" and _is_name(found, named):
                names.add(found[named].identifier)
    return frozenset(names)


def _of_session(found: Sequence[Token], dialect: str) -> StatementSubject:
    """SESSION if the statement consists of literals and of calls about the session, else ROWS."""
    tokens = found[:-1] if found[-1].text == ";" else found
    names = SESSION_FUNCTIONS.keys() - (frozenset() if dialect == POSTGRES else _TIMES)
    places = range(1, len(tokens))
    calls = any(_called(tokens, place) in names or tokens[place].word in _WITHOUT_PARENTHESES for place in places)
    opened: list[bool] = []
    for place in places:
        token = tokens[place]
        if token.text == "(":
            opened.append(bool(_called(tokens, place - 1)))
        elif token.text == ")" and opened:
            opened.pop()
        elif not _is_of_session(tokens, place, names, calls, dialect, any(opened)):
            return StatementSubject.ROWS
    return StatementSubject.SESSION if len(tokens) > 1 and tokens[0].word == "SELECT" else StatementSubject.ROWS


def _is_of_session(
    tokens: Sequence[Token], place: int, names: Set[str], calls: bool, dialect: str, in_call: bool
) -> bool:
    """`calls`: the statement has a call about the session. `in_call`: the token is in the parentheses of a call."""
    token, before, after = tokens[place], tokens[place - 1], _text(tokens, place + 1)
    plain = dialect == POSTGRES
    if token.kind == "number":
        return _NUMBER.fullmatch(token.text) is not None
    if token.kind == "text":
        return token.text.startswith("'") and before.kind != "text" and (plain or in_call)
    if token.kind == "parameter":
        return in_call
    if token.text in (",", ".") or (token.word in _CONSTANTS and before.word != "AS"):
        return True
    if token.text in _OPERATORS or token.word in _OPERATORS:
        return plain and calls
    if token.text == ":":
        return plain and (before.text == ":" or after == ":")
    if before.text == ":" or (before.text == "." and _text(tokens, place - 3) == ":"):
        return token.identifier in (*_TYPES, PG_CATALOG) and after not in ("(", "[")
    if token.identifier == PG_CATALOG and after == ".":
        return True
    called = _called(tokens, place)
    if called:
        return called in names or (plain and calls and called in _AROUND)
    if token.word in _WITHOUT_PARENTHESES and before.word != "AS":
        return True
    if token.word == "AS":
        return _is_name(tokens, place + 1)
    value = before.text == ")" or before.kind in _VALUES or before.word in _WITHOUT_PARENTHESES | _CONSTANTS
    return _is_name(tokens, place) and after in ("", ",", ")") and (before.word == "AS" or value)
