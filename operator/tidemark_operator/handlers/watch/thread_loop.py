"""A coroutine in a thread of its own, on a loop of its own: what it does to its loop does nothing to ours.

our loop ── stop ──► the thread's loop: the coroutine is cancelled
         ◄─ ended ── why
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

LOG = logging.getLogger(__name__)
END_SECONDS = 10.0
"""How long one that was told to end is waited for. Its thread ends with the process in any case."""

LAST_SECONDS = 1.0
TRIES, TRY_SECONDS = 4, 2.0


class Apart:
    """`work` is begun at once. Raises OSError, RuntimeError where there can be no loop, or no thread."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work, self._ours, self._theirs = work, asyncio.get_running_loop(), asyncio.new_event_loop()
        self._theirs.set_exception_handler(self._unheard)
        self._stop = asyncio.Event()
        self.ended: asyncio.Future[BaseException | None] = self._ours.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._theirs.close()
            raise

    async def end(self) -> None:
        """Once it has ended, or is given up on."""
        self._told(self._theirs, self._stop.set)
        await asyncio.wait({self.ended}, timeout=END_SECONDS)
        if self.ended.done():
            # saying so was the last that it did
            self._thread.join(LAST_SECONDS)
        else:
            LOG.warning("%s: not ended within %.0f s", self._thread.name, END_SECONDS)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._theirs.run_until_complete(self._until_stopped())
        except BaseException as raised:
            error = raised
        self._theirs.close()
        self._told(self._ours, self._say, error)

    def _say(self, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    async def _until_stopped(self) -> None:
        stopped = asyncio.create_task(self._stop.wait())
        working = asyncio.create_task(self._work())
        await asyncio.wait((stopped, working), return_when=asyncio.FIRST_COMPLETED)
        error = working.exception() if working.done() and not working.cancelled() else None
        await _end_all()
        if error is not None:
            raise error

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Of tasks of which nobody there asks how they ended; how all of it ended is told."""
        LOG.debug("%s: %s: %r", self._thread.name, context["message"], context.get("exception"))

    @staticmethod
    def _told(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # of a loop that is closed: nobody is there any more
            loop.call_soon_threadsafe(call, *arguments)


async def _end_all() -> None:
    """All tasks of this loop. Again and again: one may take being cancelled for something else, and go on."""
    for _ in range(TRIES):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=TRY_SECONDS)
    LOG.warning("tasks that do not end are left: %s", ", ".join(sorted(task.get_name() for task in left)))
