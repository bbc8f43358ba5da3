"""A user's text in another dialect: Spark's text, and positions in the user's text for what is refused.

The planner refuses by positions in Spark's text. A position is moved to the same occurrence of the same word in the
user's text; where the word occurs less or more often there, the position is not known.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import sqlglot
from sqlglot import errors, exp

from tidemark_planner.dialects.admission import COMPARED, check_duckdb
from tidemark_planner.dialects.documented import DOCUMENTED, check_documented
from tidemark_planner.dialects.errors import NotTranslated
from tidemark_planner.dialects.meanings import as_spark
from tidemark_planner.dialects.nesting import check_nesting
from tidemark_planner.dialects.number_kinds import Numbers, Tables
from tidemark_planner.dialects.postgres_admission import check_postgres
from tidemark_planner.dialects.postgres_arrays import as_lists
from tidemark_planner.dialects.postgres_times import as_spark_times, type_literals, type_parts
from tidemark_planner.dialects.session_dialect import SessionDialect
from tidemark_planner.errors import Refusal, offset_of, position, refuse
from tidemark_protocol.messages.planning import Diagnostic
from tidemark_protocol.types import Column

SPARK = "spark"
DIALECTS = (*COMPARED, *DOCUMENTED)
_TOKEN = re.compile(r"<Token token_type: TokenType[.]\w+, text: (.*?), line: .*?>")
Lookup = Callable[[tuple[str, ...], int, int], tuple[Column, ...]]
"""The columns of the relation that a name means, by its parts, its line and its column. Raises Refusal where it means
none, or several."""


@dataclass(frozen=True)
class ForeignText:
    """`original`: what the user wrote; `text`: the same in Spark's SQL."""

    original: str
    text: str

    def at_original_positions(self, refusal: Refusal) -> Refusal:
        """The refusal with positions in the user's text."""
        return Refusal(*(self._moved(diagnostic) for diagnostic in refusal.diagnostics))

    def _moved(self, diagnostic: Diagnostic) -> Diagnostic:
        if not diagnostic.line:
            return diagnostic
        offset = offset_of(self.text, diagnostic.line, diagnostic.column)
        there = _occurrences(self.text, diagnostic.word)
        here = _occurrences(self.original, diagnostic.word)
        at = next((number for number, start in enumerate(there) if start >= offset), None)
        if at is None or len(there) != len(here):
            return replace(diagnostic, line=0, column=0)
        line, column = position(self.original, here[at])
        return replace(diagnostic, line=line, column=column)


def check_dialect(dialect: str) -> None:
    """Raises Refusal for a dialect that is not admitted."""
    name = SessionDialect.of(dialect).name
    if name != SPARK and name not in DIALECTS:
        admitted = ", ".join((SPARK, *DIALECTS))
        refuse("UNSUPPORTED", f"dialect {name} is not supported: choose among {admitted}", word=name)


def as_spark_text(sql: str, dialect: str, look_up: Lookup) -> ForeignText:
    """The text in Spark's SQL; raises Refusal, with a position in `sql`, for what is not known to mean the same.
    `dialect`: as SessionDialect reads it."""
    session = SessionDialect.of(dialect)
    dialect = session.name
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        check_nesting(sql, dialect)
        trees = [tree for tree in sqlglot.parse(sql, read=dialect) if tree is not None]
        if len(trees) != 1 or not isinstance(trees[0], exp.Query):
            refuse("UNSUPPORTED", "the text is not one query: write a SELECT", 1, 1, (sql.split() or [""])[0])
        tables = _named_tables(sql, trees[0], look_up)
        _shorten_columns(trees[0])
        made = as_spark(_checked(sql, trees[0], session, tables), dialect, tables)
        return ForeignText(sql, str(made.sql(SPARK, unsupported_level=sqlglot.ErrorLevel.RAISE)))
    except errors.ParseError as error:
        raise Refusal(_syntax(sql, error)) from None
    except NotTranslated as error:
        raise Refusal(_not_known(sql, dialect, error)) from None
    except (errors.SqlglotError, RecursionError, ValueError, AttributeError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        refuse("UNSUPPORTED", f"the text has no translation from dialect {dialect}: {reason}; write it in Spark's SQL")


def _named_tables(sql: str, tree: exp.Expression, look_up: Lookup) -> Tables:
    """The relations that a text names. Raises one Refusal for all names that mean nothing."""
    queries = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found: dict[str, tuple[Column, ...]] = {}
    missing: list[Diagnostic] = []
    for table in tree.find_all(exp.Table):
        parts = tuple(part.name for part in table.parts)
        if not isinstance(table.this, exp.Identifier) or (len(parts) == 1 and parts[0].lower() in queries):
            continue
        try:
            found[".".join(parts)] = look_up(parts, *position(sql, _span(table.parts[0])[0]))
        except Refusal as refusal:
            missing += refusal.diagnostics
    if missing:
        raise Refusal(*missing)
    return found


def _checked(sql: str, tree: exp.Expression, session: SessionDialect, tables: Tables) -> exp.Expression:
    """The tree, of which all is admitted, with PostgreSQL's times in Spark's words. Raises NotTranslated."""
    if session.is_postgres:
        numbers = Numbers(tables, tree, session.name)
        type_parts(sql, tree)
        as_lists(tree, numbers)
        type_literals(tree, numbers)
        check_postgres(sql, tree, session, tables)
        return as_spark_times(tree, numbers, session.zone)
    if session.name == "duckdb":
        check_duckdb(tree, tables)
    else:
        check_documented(tree, session.name, tables)
    return tree


def _shorten_columns(tree: exp.Expression) -> None:
    """`source.table.column`, as ORMs write it, becomes `table.column`: Spark's text has the relation under its last
    name. A column stays, and is refused by the analysis, where something else of the text has that name."""
    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias)}
    sources: dict[str, set[str]] = {}
    for table in tree.find_all(exp.Table):
        if not table.alias:
            sources.setdefault(table.name.lower(), set()).add(table.text("db").lower())
    for column in tree.find_all(exp.Column):
        name, source = column.table.lower(), column.text("db").lower()
        if source and not column.text("catalog") and name not in aliases and sources.get(name) == {source}:
            column.set("db", None)


def _syntax(sql: str, error: errors.ParseError) -> Diagnostic:
    found = error.errors[0] if error.errors else {}
    word, before = str(found.get("highlight") or ""), str(found.get("start_context") or "")
    start = sql.find(before + word) + len(before) if before + word in sql else -1
    line, column = position(sql, start) if start >= 0 else (0, 0)
    message = _TOKEN.sub(r"\1", found.get("description", ""))
    return Diagnostic("SYNTAX", message or "the text cannot be read", line=line, column=column, word=word)


def _not_known(sql: str, dialect: str, error: NotTranslated) -> Diagnostic:
    start, end = _span(error.node)
    line, column = position(sql, start) if start >= 0 else (0, 0)
    message = f"{str(error).removeprefix(f'{dialect}: ')}; write the query in Spark's SQL"
    return Diagnostic("UNSUPPORTED", message, line=line, column=column, word=sql[start:end] if start >= 0 else "")


def _span(node: Any) -> tuple[int, int]:
    """The first token of the node in the text, if any part of it has one: offsets, or (-1, -1)."""
    if node is None:
        return (-1, -1)
    own = node.meta
    if "start" in own:
        return own["start"], own["end"] + 1
    spans = [(below.meta["start"], below.meta["end"] + 1) for below in node.walk() if "start" in below.meta]
    return min(spans, default=(-1, -1))


def _occurrences(text: str, word: str) -> list[int]:
    """Where the word stands by itself, without regard to case and quotes."""
    name = word.rsplit(".", 1)[-1].strip('`"')
    if not name:
        return []
    return [m.start() for m in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)]
