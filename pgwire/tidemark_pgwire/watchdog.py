"""Ends a process whose event loop stands. Probes of a pod do not notice it: the kernel takes their connections."""

from __future__ import annotations

import asyncio
import faulthandler

STANDS_SECONDS = 30.0


async def watch(seconds: float = STANDS_SECONDS) -> None:
    """Watch until cancelled. If the loop does not come back here for `seconds`, the tracebacks of all threads go to
    stderr, and the process ends with status 1; the timer's thread needs no GIL."""
    try:
        while True:
            faulthandler.dump_traceback_later(seconds, exit=True)
            await asyncio.sleep(seconds / 6)
    finally:
        faulthandler.cancel_dump_traceback_later()
