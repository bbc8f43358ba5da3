"""The rights of a running subscribe are checked again every minute.

    token or certificate ──► still valid? ──► may its user still read every relation? ──► the subscribe goes on
                             no               no                                          SubscribeRevoked

While the API server does not answer, its last answer holds: an outage of the API server ends no subscribes. While too
many logins of the user fail, its own cannot be looked at: it is tried every RETRY_SECONDS, and the subscribe ends after
UNCONFIRMED_SECONDS, or guesses at a password would keep rights that were withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tidemark_operator.errors import OperatorError, SubscribeRevoked, TooMany
from tidemark_operator.fleet.clients.subscription import Subscription
from tidemark_operator.gateway.auth.access import Access, ReviewUnavailable

LOG = logging.getLogger(__name__)
RECHECK_SECONDS = 60.0
RETRY_SECONDS, UNCONFIRMED_SECONDS = 6.0, 600.0
"""A failed login of a user is forgotten every six seconds: then one more is looked at."""
Authenticate = Callable[[], Awaitable[Access]]
"""Authenticates the call again; raises Unauthenticated, ReviewUnavailable, TooMany."""
CheckRights = Callable[[Access], Awaitable[None]]
"""Checks the rights to the relations that a subscribe reads, by their objects when the subscribe began (an edit of such
an object ends the subscribe in another way); raises as `check_rights`."""


@asynccontextmanager
async def while_allowed(subscription: Subscription, admit: Authenticate, check: CheckRights) -> AsyncIterator[None]:
    """End the subscription with SubscribeRevoked once its caller lacks a right."""
    asking = asyncio.create_task(_ask_again(subscription, admit, check), name="rights of a subscribe")
    try:
        yield
    finally:
        asking.cancel()


async def _ask_again(subscription: Subscription, admit: Authenticate, check: CheckRights) -> None:
    confirmed, pause = time.monotonic(), RECHECK_SECONDS
    while subscription.failure is None:
        await asyncio.sleep(pause)
        pause = RECHECK_SECONDS
        try:
            await check(await admit())
            confirmed = time.monotonic()
        except TooMany as error:
            pause = RETRY_SECONDS
            if (silent := time.monotonic() - confirmed) >= UNCONFIRMED_SECONDS:
                subscription.end(
                    SubscribeRevoked(f"the right to read it was not confirmed for {silent:.0f} s: {error}")
                )
        except ReviewUnavailable as error:
            LOG.warning("the rights of a subscribe cannot be checked, so it goes on: %s", error)
        except OperatorError as error:
            subscription.end(SubscribeRevoked(f"the right to read it was withdrawn: {error}"))
        except Exception:  # nothing awaits this task: its end would leave the subscribe unchecked
            LOG.exception("the rights of a subscribe cannot be checked, so it goes on")
