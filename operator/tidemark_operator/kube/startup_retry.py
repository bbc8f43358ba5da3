"""Retries of transient API failures while an operator starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemark_operator.kube.client import ApiError

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
TRIES = 30
"""The number of tries, after which the process ends, and its supervisor restarts it."""
T = TypeVar("T")


async def retry_at_startup(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of `ask`, tried TRIES times. `what`: its name in the log.

    Raises:
        ApiError: of the last try, or one that is not transient.
    """
    for _ in range(TRIES - 1):
        try:
            return await ask()
        except ApiError as error:
            if not error.is_transient:
                raise
            LOG.warning("retrying %s: %s", what, error)
        await asyncio.sleep(RETRY_SECONDS)
    return await ask()
