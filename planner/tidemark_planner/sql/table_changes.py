"""table_changes('a.b'): the changes of the input that a continual task watches, as a relation.

    FROM table_changes('shop.orders') c      ->      FROM `/changes/shop.orders` c

Its columns are those of the input, `_change_type` ('insert' or 'delete') and `_commit_timestamp`, as in Delta Lake's
change data feed. It holds the changes at the current time alone, so it takes no versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_planner.errors import refuse
from tidemark_planner.sql.names import NamedRelation, NameScope
from tidemark_planner.sql.syntax import ParseTree, RelationName, TableCall
from tidemark_protocol.messages.planning import Relation
from tidemark_protocol.types import STRING, TIMESTAMP, Column

FUNCTION = "table_changes"
CHANGE_TYPE, COMMIT_TIMESTAMP = "_change_type", "_commit_timestamp"


def columns_of_changes(relation: Relation) -> tuple[Column, ...]:
    """The columns of table_changes() of the relation."""
    return (*relation.columns, Column(CHANGE_TYPE, STRING, False), Column(COMMIT_TIMESTAMP, TIMESTAMP, False))


def changes_in(sql: str, tree: ParseTree, scope: NameScope) -> Iterator[tuple[RelationName, NamedRelation]]:
    """The calls in a text, each as a name that means a declared relation; raises Refusal."""
    if FUNCTION not in sql.lower():
        return
    for call in tree.table_calls(FUNCTION):
        yield RelationName((FUNCTION,), call.aliased, call.span, frozenset()), _watched_relation(call, scope)


def _watched_relation(call: TableCall, scope: NameScope) -> NamedRelation:
    at = (call.span.line, call.span.column, FUNCTION)
    if not scope.changes:
        refuse(
            "UNSUPPORTED",
            f"{FUNCTION} is not supported outside the views of a "
            "continualTask: it reads the changes of the watched input",
            *at,
        )
    watched = next(iter(scope.changes.values())).leaf.rpartition("/")[2]
    if len(call.arguments) != 1 or call.arguments[0][:1] not in ("'", '"'):
        message = f"{FUNCTION} takes one argument, the name of the watched input: write {FUNCTION}('{watched}')"
        refuse("UNSUPPORTED", message, *at)
    known = scope.changes.get(call.arguments[0][1:-1].lower())
    if known is None:
        message = (
            f"{FUNCTION}({call.arguments[0]}): this continualTask watches "
            f"{watched} alone: write {FUNCTION}('{watched}')"
        )
        refuse("UNSUPPORTED", message, *at)
    _check_names(known, at)
    return known


def _check_names(known: NamedRelation, at: tuple[int, int, str]) -> None:
    """Raise Refusal where the input has a column with a name that table_changes() adds."""
    names = [c.name.lower() for c in known.columns]
    for name in (CHANGE_TYPE, COMMIT_TIMESTAMP):
        if names.count(name) > 1:
            message = f"{FUNCTION} adds a column {name}, which the input already has: watch a view that renames it"
            refuse("DUPLICATE_NAME", message, *at)
