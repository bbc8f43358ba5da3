"""What a caller must be allowed to, for a statement, and what one is told who is not.

    reads a, b         get on the data of each object            what is read must still be there
    reads a relation of what the operator knows, or nothing      list: it shows objects, or makes replicas work
    refused            the refusal names what there is           list

Who may not list objects is told the same of what is not there as of what may not be read, so that nobody finds out by
guessing what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from tidemark_operator.errors import Changed, QueryRefused
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.introspection.relations import is_introspection
from tidemark_operator.planning.revision import Parent
from tidemark_operator.resources.conditions.diagnostics import describe
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Refused


async def allow(access: Access, namespace: str, reads: Sequence[GlobalId], found: Mapping[GlobalId, Parent]) -> None:
    """`found`: whose each relation is. Raises Forbidden, and QueryRefused where something is nobody's any more: whose
    right it takes is unknown then."""
    tables = [id for id in reads if not is_introspection(id)]
    gone = any(id not in found for id in tables)
    if gone or not tables or len(tables) < len(reads):
        await _see_objects(access, namespace)
    if gone:
        raise Changed()
    try:
        await access.see_rows(namespace, sorted({found[id] for id in tables}, key=str))
    except Forbidden:
        await _see_objects(access, namespace)
        raise


async def refuse(access: Access, namespace: str, refused: Refused) -> NoReturn:
    """Raises QueryRefused to whoever may know, and Forbidden."""
    await _see_objects(access, namespace)
    raise QueryRefused("; ".join(describe(d) for d in refused.diagnostics))


async def _see_objects(access: Access, namespace: str) -> None:
    try:
        await access.see_objects(namespace)
    except Forbidden as error:
        raise Forbidden(
            f"{error}, and may not read all that the statement names, or it is not there: reading rows takes get on "
            "dataflows/data or datasources/data"
        ) from None
