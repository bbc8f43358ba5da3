"""The rights that a statement needs, and the errors of callers that lack them.

    the statement reads                      the right
    tables and exports                       get on the data of each object, which must still exist
    tidemark_introspection, or nothing       list: the rows show objects, or cost replicas work
    (the planner refused it)                 list: the refusal names existing objects

A caller without the right to list gets one error both for an object that does not exist and for one whose rows it may
not read, so that names cannot be guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from tidemark_operator.errors import RelationChanged, StatementRefused
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.introspection.relations import is_introspection
from tidemark_operator.planning.revision import Parent
from tidemark_operator.resources.conditions.diagnostics import describe
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Refused

SQLSTATES = {
    "SYNTAX": "42601",
    "UNRESOLVED_RELATION": "42P01",
    "UNRESOLVED_COLUMN": "42703",
    "AMBIGUOUS": "42702",
    "UNSUPPORTED": "0A000",
    "FORBIDDEN_FUNCTION": "42883",
    "TYPE": "42804",
    "DUPLICATE_NAME": "42701",
    "RESERVED_NAME": "42939",
    "TOO_LARGE": "54000",
    "TIMEOUT": "57014",
    "INTERNAL": "XX000",
}
"""The SQLSTATEs of the planner's diagnostics, by their codes."""


async def check_rights(
    access: Access, namespace: str, reads: Sequence[GlobalId], found: Mapping[GlobalId, Parent]
) -> None:
    """Check the rights for a statement that reads `reads`. `found`: the object of each relation.

    Raises:
        Forbidden: the caller lacks a right.
        RelationChanged: a relation belongs to no object any more, so the right that it needs is unknown.
        ReviewUnavailable: the API server does not answer.
    """
    tables = [id for id in reads if not is_introspection(id)]
    if any(id not in found for id in tables):
        raise RelationChanged()
    if not tables or len(tables) < len(reads):
        await see_objects(access, namespace)
    try:
        await access.check_rows(namespace, sorted({found[id] for id in tables}, key=str))
    except Forbidden:
        await see_objects(access, namespace)
        raise


async def raise_refusal(access: Access, namespace: str, refused: Refused) -> NoReturn:
    """Raise the planner's refusal as StatementRefused, or Forbidden where the caller may not list objects."""
    await see_objects(access, namespace)
    raise refusal(refused)


def refusal(refused: Refused) -> StatementRefused:
    """The refusal of a query, as an error."""
    first = refused.diagnostics[0] if refused.diagnostics else Diagnostic("INTERNAL", "the planner gave no reason")
    text = "; ".join(describe(d) for d in refused.diagnostics) or first.message
    return StatementRefused(text, first.code, first.line, first.column)


async def see_objects(access: Access, namespace: str) -> None:
    """Check the right to list objects. Raises Forbidden, as where a statement names what does not exist."""
    try:
        await access.check_objects(namespace)
    except Forbidden as error:
        raise Forbidden(
            f"{error}. The statement also names something that does not exist or that you may not read: reading rows "
            "needs the verb get on dataflows/data or datasources/data"
        ) from None
