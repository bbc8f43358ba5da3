"""Calls that outlast a restart of the gateway. An exception of the driver ends a streaming query, and so does that of a
task where Spark is local."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import grpc

from tidemark.errors import Error, is_passing

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 2.0
T = TypeVar("T")


def patiently(call: Callable[[], T]) -> T:
    """Call again while the gateway is away, and for a minute at most. Raises the last error of the call."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except Error as error:
            if not is_passing(error) or time.monotonic() >= end:
                raise
        time.sleep(PAUSE_SECONDS)


def is_in_error(error: Error) -> bool:
    """Whether the view has rows that cannot be computed: the replica says that its result or its subscribe "is in
    error". Its SQLSTATE does not tell it from an answer that is too large, or a subscribe whose input was replaced."""
    return error.code is grpc.StatusCode.FAILED_PRECONDITION and " is in error: " in str(error)
