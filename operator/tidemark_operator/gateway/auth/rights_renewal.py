"""Rights for as long as something lasts: of a subscribe they are asked for again every minute.

    the token, or certificate ──► still somebody's? ──► may that one still read all of it? ──► it goes on
                                   no                    no                                    it ends: SubscribeRevoked

While the API server cannot be asked, what it said last holds: an outage of it ends no subscribes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidemark_operator.errors import OperatorError, SubscribeRevoked
from tidemark_operator.fleet.subscription import Subscription
from tidemark_operator.gateway.auth.access import Access, Unreviewed
from tidemark_operator.gateway.auth.rights import allow
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import GlobalId

LOG = logging.getLogger(__name__)
ASKED_AGAIN_SECONDS = 60.0
Admit = Callable[[], Awaitable[Access]]
"""Whoever calls, by what was shown with the call; raises Unauthenticated, Unreviewed."""


@dataclass(frozen=True)
class Reads:
    """What it reads, and whose that was when it began: an edit of what is read ends it in another way."""

    namespace: str
    ids: Sequence[GlobalId]
    owners: Mapping[GlobalId, Parent]


@asynccontextmanager
async def while_allowed(subscription: Subscription, admit: Admit, reads: Reads) -> AsyncIterator[None]:
    """Ends the subscription once it is not allowed any more."""
    asking = asyncio.create_task(_ask_again(subscription, admit, reads), name="rights of a subscribe")
    try:
        yield
    finally:
        asking.cancel()


async def _ask_again(subscription: Subscription, admit: Admit, reads: Reads) -> None:
    while subscription.failure is None:
        await asyncio.sleep(ASKED_AGAIN_SECONDS)
        try:
            await allow(await admit(), reads.namespace, reads.ids, reads.owners)
        except Unreviewed as error:
            LOG.warning("a subscribe goes on as it was allowed to: %s", error)
        except OperatorError as error:
            subscription.end(SubscribeRevoked(f"it is not allowed any more: {error}"))
        except Exception:  # nobody waits for this task: what ended it would leave the subscribe to itself
            LOG.exception("a subscribe goes on as it was allowed to")
