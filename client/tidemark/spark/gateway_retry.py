"""Calls that outlast a restart of the gateway. An exception of the driver ends a streaming query, and so does that of a
task where Spark is local."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tidemark.errors import Error, is_passing

RETRY_SECONDS = 60.0
PAUSE_SECONDS = 2.0
T = TypeVar("T")


def retried(call: Callable[[], T]) -> T:
    """Call again while the gateway is away, and for a minute at most. Raises the last error of the call."""
    end = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return call()
        except Error as error:
            if not is_passing(error) or time.monotonic() >= end:
                raise
        time.sleep(PAUSE_SECONDS)
