"""TRY_CAST and try_add, try_subtract, try_multiply, try_divide, try_mod: NULL where the operation raises.

Spark's printed tree does not distinguish them from the functions without try_. So the text that is analysed marks them
with a condition that is never true, and the mark is read off the tree:

    TRY_CAST(s AS INT)      if('/try' = '', NULL, CAST(s AS INT))         If(EqualTo('/try', ''), NULL, Cast(s))
    try_divide(a, b)        if('/try' = '', NULL, (a) / (b))
    try_sum(x)              sum(if('/try' = 'of', NULL, x))

Only the operation itself is tried: an error in its arguments is raised. So `sum(TRY_CAST(s AS INT))` and
`try_sum(CAST(s AS INT))` have different marks. Inline tables are not marked, since analysis evaluates them.
"""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.sql.names import Edit, rewrite
from tidemark_planner.sql.syntax import ParseTree

_MARK = "/try"
_OPERATION, _AGGREGATE = "", "of"
_OPEN, _OPEN_AGGREGATE = (f"if('{_MARK}' = '{what}', NULL, " for what in (_OPERATION, _AGGREGATE))
_OPERATORS = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%"}
# With one argument; with a pattern, the tree shows them.
_CASTS = {"try_to_timestamp": "TIMESTAMP", "try_to_date": "DATE"}
_AGGREGATES = {"try_sum": "sum", "try_avg": "avg"}
NAMES = frozenset((*_OPERATORS, *_CASTS))
# By the function that raises: the variant that gives NULL instead.
TRY_VARIANTS = {"cast": "try_cast", **{operator: name for name, operator in _OPERATORS.items()}}


def try_edits(sql: str, tree: ParseTree) -> list[Edit]:
    """The edits that mark try_ functions."""
    if "TRY_" not in sql.upper():
        return []
    edits = []
    for token, whole in tree.casts("TRY_CAST"):
        if not tree.is_in_table(token.span):
            edits += [Edit(token.span.start, token.span.end, _OPEN + "CAST"), Edit(whole.end, whole.end, ")")]
    for name, whole, arguments in tree.calls(_CASTS):
        if len(arguments) == 1 and not tree.is_in_table(whole):
            of, target = arguments[0].span, _CASTS[name.name]
            edits.append(Edit(whole.start, of.start, f"{_OPEN}CAST("))
            edits.append(Edit(of.end, whole.end, f" AS {target}))"))
    for name, whole, arguments in tree.calls(_AGGREGATES):
        if len(arguments) == 1 and not tree.is_in_table(whole):
            of = arguments[0].span
            edits.append(Edit(name.span.start, name.span.end, _AGGREGATES[name.name]))
            edits += [Edit(of.start, of.start, _OPEN_AGGREGATE), Edit(of.end, of.end, ")")]
    for name, whole, arguments in tree.calls(_OPERATORS):
        if len(arguments) == 2 and not tree.is_in_table(whole):
            (left, right), operator = (a.span for a in arguments), _OPERATORS[name.name]
            edits.append(Edit(whole.start, left.start, _OPEN + "("))
            edits.append(Edit(left.end, right.start, f") {operator} ("))
            edits.append(Edit(right.end, whole.end, "))"))
    return edits


def mark_try_functions(catalyst_jvm: object, sql: str) -> str:
    """A text of the planner's own with its marks."""
    if "TRY_" not in sql.upper():
        return sql
    return rewrite(sql, (), try_edits(sql, ParseTree(catalyst_jvm, sql))).text


def tried_operation(node: CatalystNode) -> CatalystNode | None:
    """The operation that a marked If tries; None for any other If."""
    return _marked_operand(node, _OPERATION)


def tried_aggregate(node: CatalystNode) -> CatalystNode | None:
    """The argument of a marked try_sum or try_avg; None for any other node."""
    return _marked_operand(node, _AGGREGATE) if node.kind == "If" else None


def _marked_operand(node: CatalystNode, what: str) -> CatalystNode | None:
    condition, _, of = node.children
    if condition.kind != "EqualTo" or [c.fields.get("value") for c in condition.children] != [_MARK, what]:
        return None
    return of
