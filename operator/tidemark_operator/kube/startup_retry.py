"""An API server that only stumbles while an operator starts is asked again, for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemark_operator.kube.client import ApiError

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
TRIES = 30
"""Then the process ends, and whoever supervises it starts it anew."""
T = TypeVar("T")


async def retry_at_startup(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer; raises the ApiError of the last try, and at once one that will not pass."""
    for _ in range(TRIES - 1):
        try:
            return await ask()
        except ApiError as error:
            if not error.passes:
                raise
            LOG.warning("asking again for %s: %s", what, error)
        await asyncio.sleep(RETRY_SECONDS)
    return await ask()
