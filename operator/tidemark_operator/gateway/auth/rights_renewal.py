"""The rights of a running subscribe are checked again every minute.

    token or certificate ──► still valid? ──► may its user still read every relation? ──► the subscribe goes on
                             no               no                                          SubscribeRevoked

While the API server does not answer, its last answer holds: an outage of the API server ends no subscribes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidemark_operator.errors import OperatorError, SubscribeRevoked
from tidemark_operator.fleet.clients.subscription import Subscription
from tidemark_operator.gateway.auth.access import Access, ReviewUnavailable
from tidemark_operator.gateway.auth.rights import check_rights
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId

LOG = logging.getLogger(__name__)
RECHECK_SECONDS = 60.0
Authenticate = Callable[[], Awaitable[Access]]
"""Authenticates the call again; raises Unauthenticated, ReviewUnavailable."""


@dataclass(frozen=True)
class ReadSet:
    """The relations that a subscribe reads, and their objects when it began (an edit of one ends it in another way)."""

    namespace: str
    ids: Sequence[GlobalId]
    owners: Mapping[GlobalId, Parent]


@asynccontextmanager
async def while_allowed(subscription: Subscription, admit: Authenticate, reads: ReadSet) -> AsyncIterator[None]:
    """End the subscription with SubscribeRevoked once its caller lacks a right."""
    asking = asyncio.create_task(_ask_again(subscription, admit, reads), name="rights of a subscribe")
    try:
        yield
    finally:
        asking.cancel()


async def _ask_again(subscription: Subscription, admit: Authenticate, reads: ReadSet) -> None:
    while subscription.failure is None:
        await asyncio.sleep(RECHECK_SECONDS)
        try:
            await check_rights(await admit(), reads.namespace, reads.ids, reads.owners)
        except ReviewUnavailable as error:
            LOG.warning("the rights of a subscribe cannot be checked, so it goes on: %s", error)
        except OperatorError as error:
            subscription.end(SubscribeRevoked(f"the right to read it was withdrawn: {error}"))
        except Exception:  # nothing awaits this task: its end would leave the subscribe unchecked
            LOG.exception("the rights of a subscribe cannot be checked, so it goes on")
