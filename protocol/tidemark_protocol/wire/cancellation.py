"""Calls that end because their channel does, and calls whose task is canceled.

grpc.aio raises CancelledError in both cases. A handler that lets the first one through sends its own client no status.
"""

from __future__ import annotations

import asyncio


def is_canceled() -> bool:
    """Whether the current task was canceled, and no call's channel alone was closed."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
