"""LIKE and ILIKE with ESCAPE, and with ANY, SOME or ALL of several patterns.

Spark's printed tree shows neither the escape character nor, where all patterns are literals, the patterns. So the text
that is analysed marks both with a condition that is never true, and the mark is read off the tree:

    s LIKE 'a!%' ESCAPE '!'     s LIKE if('/escape' = '!', NULL, 'a!%')      s LIKE 'a\\%'
    s LIKE ANY ('a%', 'b%')     s LIKE ANY (if('/escape' = '\\', NULL, 'a%'), 'b%')      s LIKE 'a%' OR s LIKE 'b%'

Plans have one form of pattern, whose escape character is the backslash. So a pattern with another escape character must
be a literal. Inline tables are not marked, since analysis evaluates them.
"""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import unsupported
from tidemark_planner.sql.names import Edit
from tidemark_planner.sql.syntax import ParseTree
from tidemark_protocol.plan.expr import Literal, ScalarExpr

_MARK = "/escape"
_BACKSLASH = "'\\\\'"


def like_edits(sql: str, tree: ParseTree) -> list[Edit]:
    """The edits that mark patterns and escape characters."""
    if "LIKE" not in sql.upper():
        return []
    edits = []
    for patterns, escape in tree.likes():
        of = patterns[0].span
        if tree.is_in_table(of):
            continue
        edits.append(Edit(of.start, of.start, f"if('{_MARK}' = {escape.text if escape else _BACKSLASH}, NULL, "))
        edits.append(Edit(of.end, escape.span.end if escape else of.end, ")"))
    return edits


def marked_pattern(node: CatalystNode) -> tuple[str, CatalystNode] | None:
    """The escape character and the pattern of a marked If; None for any other If."""
    condition, _, pattern = node.children
    if condition.kind != "EqualTo" or condition.children[0].fields.get("value") != _MARK:
        return None
    return str(condition.children[1].fields["value"]), pattern


def with_backslash(pattern: ScalarExpr, escape: str, folds: bool) -> ScalarExpr:
    """The pattern with the backslash as its escape character; `folds`: its letters are compared in lower case."""
    if escape == "\\":
        return pattern
    if not isinstance(pattern, Literal):
        unsupported("ESCAPE with a pattern that is not a literal", "escape with the backslash", "ESCAPE")
    if folds and escape.lower() != escape.upper():
        unsupported("ILIKE with a letter as ESCAPE", "choose a character that is not a letter", "ESCAPE")
    return pattern if pattern.value is None else Literal(_translated(pattern.value, escape), pattern.type)


def _translated(pattern: str, escape: str) -> str:
    """An escape before a character that cannot be escaped stays an error of the data after the translation."""
    made, characters = [], iter(pattern)
    for c in characters:
        if c == escape:
            after = next(characters, "")
            plain = after == escape and after not in "%_"
            made.append(after if plain else "\\" + (after if after in ("%", "_", "") else "x"))
        else:
            made.append("\\\\" if c == "\\" else c)
    return "".join(made)
