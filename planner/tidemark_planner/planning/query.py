"""One query, from text to HIR.

text ─► parse ─► refusals on the parse tree ─► names ─► rewritten text ─► analysis ─► lower ─► rules

A recursive query is cut into parts (recursion/) that each go this way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark_planner.catalyst.analyser import Catalyst, quoted
from tidemark_planner.catalyst.json_tree import Node
from tidemark_planner.errors import NeedsOperators, Refusal, refuse, unsupported
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.lower import LOWERINGS, Context, Lowered
from tidemark_planner.planning.allowed_sql import check_statement
from tidemark_planner.recursion import PartLowering, lower_block, split_recursive_query
from tidemark_planner.rules.temporal_filters import check_clock
from tidemark_planner.sql.like_patterns import like_edits
from tidemark_planner.sql.names import NamedRelation, RewrittenText, Scope, binary_edits, rewrite
from tidemark_planner.sql.syntax import ParseTree, RelationName
from tidemark_planner.sql.table_changes import changes_in
from tidemark_planner.sql.try_functions import try_edits
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import MAX_SQL_CHARACTERS, Diagnostic
from tidemark_protocol.types import INTERVAL_TYPES, SqlType

# Takes the analysed tree apart where more than a view is allowed (a query's ORDER BY and LIMIT).
Lower = Callable[[Node, Context], Lowered]
PartOfQuery = tuple[Lowered, tuple[tuple[GlobalId, Hir], ...]]


@dataclass(frozen=True)
class Query:
    """A lowered query and the objects (shared CTEs) that it reads."""

    lowered: Lowered
    objects: tuple[tuple[GlobalId, Hir], ...]


def lower_query(
    catalyst: Catalyst, sql: str, scope: Scope, object_id: Callable[[int], GlobalId], lower: Lower
) -> Query:
    """The query's HIR; raises Refusal with positions in `sql`."""
    if len(sql) > MAX_SQL_CHARACTERS:
        refuse("TOO_LARGE", f"the SQL text has {len(sql)} characters, more than the limit of {MAX_SQL_CHARACTERS}")
    block = split_recursive_query(catalyst.jvm, sql) if "RECURSIVE" in sql.upper() else None
    if block is None:
        return _lower_part(catalyst, sql, scope, object_id, lower)

    def lower_part(sql: str, scope: Scope, object_id: Callable[[int], GlobalId], lower: Lower) -> PartOfQuery:
        part = _lower_part(catalyst, sql, scope, object_id, lower)
        return part.lowered, part.objects

    parts = PartLowering(catalyst, object_id, lower_part)
    lowered = lower_block(block, scope, parts, lower)
    return Query(lowered, tuple(parts.objects))


def _lower_part(
    catalyst: Catalyst, sql: str, scope: Scope, object_id: Callable[[int], GlobalId], lower: Lower
) -> Query:
    """A query without recursion, or a part of one with it."""
    catalyst.parse(sql)
    tree = ParseTree(catalyst.jvm, sql)
    check_statement(sql, tree)
    resolved = [*_resolve_relations(tree, scope), *changes_in(sql, tree, scope)]
    edits = (*binary_edits(tree), *try_edits(sql, tree), *like_edits(sql, tree))
    rewritten = rewrite(sql, resolved, edits)
    if edits:  # what stood in a comment before them may not be SQL after them
        check_statement(rewritten.text, ParseTree(catalyst.jvm, rewritten.text))
    leaves = {known.leaf: known for _, known in resolved}
    try:
        for known in leaves.values():
            catalyst.declare(known.leaf, known.columns)
        analysed = catalyst.analyse(rewritten.text)

        def inline_rows(attribute: int, types: Sequence[SqlType]) -> list[tuple[Any, ...]]:
            return catalyst.inline_rows(analysed, attribute, types)

        context = Context(leaves, LOWERINGS, inline_rows, object_id, analysed.subqueries)
        lowered = lower(analysed.tree, context)
        _check_columns(lowered)
        for hir in (lowered.hir, *(shared for _, shared in context.objects)):
            check_clock(hir)
        return Query(lowered, tuple(context.objects))
    except NeedsOperators:
        raise
    except Refusal as refusal:
        raise _in_original(refusal, rewritten) from None
    except RecursionError:
        refuse("TOO_LARGE", "the query is nested too deeply to be planned")
    finally:
        catalyst.drop_relations()


def _check_columns(lowered: Lowered) -> None:
    for name, column in zip(lowered.names, lowered.hir.schema, strict=True):
        if column.type.name in INTERVAL_TYPES:
            hint = f"{name} may be compared, added to a time, or shown by EXTRACT of its fields"
            unsupported(f"a column of type {column.type}", hint)


def _resolve_relations(tree: ParseTree, scope: Scope) -> list[tuple[RelationName, NamedRelation]]:
    """What each relation means; all names that are missing are told at once."""
    found: list[tuple[RelationName, NamedRelation]] = []
    missing: list[Diagnostic] = []
    for name in tree.relations():
        if len(name.parts) == 1 and name.parts[0].lower() in name.ctes:
            continue
        try:
            found.append((name, _not_hidden(name, scope.resolve(name))))
        except Refusal as refusal:
            missing.extend(refusal.diagnostics)
    if missing:
        raise Refusal(*missing)
    return found


def _not_hidden(name: RelationName, known: NamedRelation) -> NamedRelation:
    """The relation, whose leaf no common table expression takes the place of: WITH `a.b` AS (...) SELECT * FROM a.b."""
    if known.leaf.lower() in name.ctes:
        dotted = ".".join(name.parts)
        message = f"{dotted} could be the relation or the query {quoted(known.leaf)} of WITH: call the latter otherwise"
        refuse("AMBIGUOUS", message, name.span.line, name.span.column, dotted)
    return known


def _in_original(refusal: Refusal, rewritten: RewrittenText) -> Refusal:
    moved = []
    for diagnostic in refusal.diagnostics:
        if diagnostic.line:
            line, column = rewritten.original_position(diagnostic.line, diagnostic.column)
        else:
            line, column = _position_of(rewritten.original, diagnostic.word)
        moved.append(replace(diagnostic, line=line, column=column))
    return Refusal(*moved)


def _position_of(sql: str, word: str) -> tuple[int, int]:
    """The position of a word that stands in the text once; (0, 0) where that is not so."""
    folded = sql.lower()
    if not word or folded.count(word.lower()) != 1:
        return (0, 0)
    before = sql[: folded.index(word.lower())]
    return (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
