"""A relation may change while a statement is planned, or waits: it is planned again, with the relations that there are.

plan ──► rights ──► wait ──► a relation is another one by now?  ──► a pause ──► plan ...      six times at most
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemark_operator.errors import RelationChanged
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import see_objects

T = TypeVar("T")
PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0)
"""Pauses before each attempt but the first: a relation may change more than once."""


async def plan_again(access: Access, namespace: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of `attempt`, which plans a statement of the caller and has sent nothing where a relation changed.

    Raises:
        RelationChanged: a relation changed at each attempt.
        Forbidden: so it is, and the caller may not list objects: it would learn that a name is there, or was.
    """
    for pause in PAUSES_SECONDS:
        try:
            return await attempt()
        except RelationChanged:
            await asyncio.sleep(pause)
    try:
        return await attempt()
    except RelationChanged:
        await see_objects(access, namespace)
        raise
