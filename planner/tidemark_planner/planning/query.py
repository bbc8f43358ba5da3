"""One query, from text to HIR.

text ─► parse ─► refusals on the parse tree ─► names ─► rewritten text ─► analysis ─► lower ─► rules

A recursive query is split into parts (recursion/), and each part goes this way. A part may be a recursive query itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tidemark_planner.catalyst.analyser import Catalyst, quoted
from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.dialects.foreign_text import SPARK, as_spark_text
from tidemark_planner.dialects.typed_check import check_types
from tidemark_planner.errors import Refusal, refuse, unsupported
from tidemark_planner.lower import LOWERINGS, Context, Lowered
from tidemark_planner.planning.allowed_sql import check_statement, current_word
from tidemark_planner.planning.positions import with_positions
from tidemark_planner.recursion import LoweredQuery, PartLowering, lower_block, split_recursive_query
from tidemark_planner.rules.temporal_filters import check_clock
from tidemark_planner.sql.like_patterns import like_edits
from tidemark_planner.sql.names import NamedRelation, NameScope, RewrittenText, binary_edits, rewrite
from tidemark_planner.sql.syntax import ParseTree, RelationName, TextSpan
from tidemark_planner.sql.table_changes import changes_in
from tidemark_planner.sql.try_functions import try_edits
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import MAX_SQL_CHARACTERS, Diagnostic
from tidemark_protocol.types import INTERVAL_TYPES, Column, SqlType

# Lowers the analysed tree; for a query it first splits ORDER BY and LIMIT off.
Lower = Callable[[CatalystNode, Context], Lowered]


def lower_query(
    catalyst: Catalyst,
    sql: str,
    scope: NameScope,
    object_id: Callable[[int], GlobalId],
    lower: Lower,
    dialect: str = SPARK,
) -> LoweredQuery:
    """The HIR of a query; raises Refusal with positions in `sql`."""
    _check_length(sql)
    if dialect == SPARK:
        return _lower_query(catalyst, sql, scope, object_id, lower, set())

    def columns_of(parts: tuple[str, ...], line: int, column: int) -> tuple[Column, ...]:
        return scope.resolve(RelationName(parts, True, TextSpan(0, 0, line, column), frozenset())).columns

    foreign = as_spark_text(sql, dialect, columns_of)
    try:
        query = _lower_query(catalyst, foreign.text, scope, object_id, lower, set())
        for hir in (query.lowered.hir, *(shared for _, shared in query.objects)):
            check_types(hir, dialect)
    except Refusal as refusal:
        raise foreign.at_original_positions(refusal) from None
    return query


def _lower_query(
    catalyst: Catalyst,
    sql: str,
    scope: NameScope,
    object_id: Callable[[int], GlobalId],
    lower: Lower,
    recursions: set[GlobalId],
) -> LoweredQuery:
    """The HIR of a query in Spark's SQL, or of a part of one with these recursions already."""
    _check_length(sql)
    block = split_recursive_query(catalyst.jvm, sql)
    if block is None:
        return _lower_part(catalyst, sql, scope, object_id, lower)

    def lower_part(sql: str, scope: NameScope, object_id: Callable[[int], GlobalId], lower: Lower) -> LoweredQuery:
        return _lower_query(catalyst, sql, scope, object_id, lower, recursions)

    parts = PartLowering(catalyst, object_id, lower_part, recursions)
    lowered = lower_block(block, scope, parts, lower)
    return LoweredQuery(lowered, tuple(parts.objects), parts.names_taken)


def _check_length(sql: str) -> None:
    if len(sql) > MAX_SQL_CHARACTERS:
        refuse(
            "TOO_LARGE",
            f"the SQL text has {len(sql)} characters, more than the limit of "
            f"{MAX_SQL_CHARACTERS}: split it into several views",
        )


def _lower_part(
    catalyst: Catalyst, sql: str, scope: NameScope, object_id: Callable[[int], GlobalId], lower: Lower
) -> LoweredQuery:
    """A query without recursion, or one part of a recursive query."""
    catalyst.parse(sql)
    tree = ParseTree(catalyst.jvm, sql)
    check_statement(sql, tree)
    resolved = [*_resolve_relations(tree, scope), *changes_in(sql, tree, scope)]
    edits = (*binary_edits(tree), *try_edits(sql, tree), *like_edits(sql, tree))
    rewritten = rewrite(sql, resolved, edits)
    if edits:  # the edits must not turn a part of a comment into SQL
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
        return LoweredQuery(lowered, tuple(context.objects), len(context.objects))
    except Refusal as refusal:
        raise _at_original_positions(refusal, rewritten, tree) from None
    except RecursionError:
        refuse("TOO_LARGE", "the query is nested too deeply to be planned: split it into several views")
    finally:
        catalyst.drop_relations()


def _check_columns(lowered: Lowered) -> None:
    for name, column in zip(lowered.names, lowered.hir.schema, strict=True):
        if column.type.name in INTERVAL_TYPES:
            hint = f"compare {name}, add it to a time, or show its fields with EXTRACT"
            unsupported(f"a column of type {column.type}", hint, name)


def _resolve_relations(tree: ParseTree, scope: NameScope) -> list[tuple[RelationName, NamedRelation]]:
    """The relation of each name in the text. Raises one Refusal for all missing names."""
    found: list[tuple[RelationName, NamedRelation]] = []
    missing: list[Diagnostic] = []
    for name in tree.relations():
        if len(name.parts) == 1 and name.parts[0].lower() in name.ctes:
            continue
        try:
            found.append((name, _check_not_hidden(name, scope.resolve(name))))
        except Refusal as refusal:
            missing.extend(refusal.diagnostics)
    if missing:
        raise Refusal(*missing)
    return found


def _check_not_hidden(name: RelationName, known: NamedRelation) -> NamedRelation:
    """The relation. Raises Refusal where a common table expression has the name of its leaf: WITH `a.b` AS (...) SELECT
    * FROM a.b.
    """
    if known.leaf.lower() in name.ctes:
        dotted = ".".join(name.parts)
        message = f"{dotted} is a relation and the name {quoted(known.leaf)} in a WITH: rename the latter"
        refuse("AMBIGUOUS", message, name.span.line, name.span.column, dotted)
    return known


def _at_original_positions(refusal: Refusal, rewritten: RewrittenText, tree: ParseTree) -> Refusal:
    """The refusal with positions in the user's text, whose parse tree `tree` is."""
    moved = []
    for diagnostic in refusal.diagnostics:
        line, column = rewritten.original_position(diagnostic.line, diagnostic.column)
        if not line and (current := current_word(tree, diagnostic.word)) is not None:
            line, column = current.span.line, current.span.column
            diagnostic = replace(diagnostic, word=current.text)
        moved.append(replace(diagnostic, line=line, column=column))
    return with_positions(Refusal(*moved), rewritten.original)
