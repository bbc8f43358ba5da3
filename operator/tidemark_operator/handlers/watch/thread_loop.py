"""Runs a coroutine in a thread and on an event loop of its own: what it does to its loop does not touch ours.

our loop ── stop ──► the thread's loop cancels the coroutine
         ◄─ ended ── its exception, or None
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
"""The time that `end` waits. The thread is a daemon, so it ends with the process in any case."""

JOIN_SECONDS = 1.0
CANCELS, CANCEL_SECONDS = 4, 2.0


class ThreadLoop:
    """Starts `work` at once. `ended`: its exception, or None.

    Raises:
        OSError, RuntimeError: there are not enough descriptors or threads.
    """

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work, self._ours, self._theirs = work, asyncio.get_running_loop(), asyncio.new_event_loop()
        self._theirs.set_exception_handler(self._log_unawaited)
        self._stop = asyncio.Event()
        self.ended: asyncio.Future[BaseException | None] = self._ours.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._theirs.close()
            raise

    async def end(self) -> None:
        """Cancels the work, and returns once it has ended, or after END_SECONDS."""
        self._call_on(self._theirs, self._stop.set)
        await asyncio.wait({self.ended}, timeout=END_SECONDS)
        if self.ended.done():
            self._thread.join(JOIN_SECONDS)
        else:
            LOG.warning("thread %s did not end within %.0f s, and is left", self._thread.name, END_SECONDS)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._theirs.run_until_complete(self._until_stopped())
        except BaseException as raised:
            error = raised
        self._theirs.close()
        self._call_on(self._ours, self._set_ended, error)

    def _set_ended(self, error: BaseException | None) -> None:
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

    def _log_unawaited(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs exceptions of tasks that nothing awaits. `ended` has the exception of the work itself."""
        LOG.debug("%s: %s: %r", self._thread.name, context["message"], context.get("exception"))

    @staticmethod
    def _call_on(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(call, *arguments)


async def _end_all() -> None:
    """Cancels all tasks of this loop, several times: a task may swallow a cancellation and go on."""
    for _ in range(CANCELS):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_SECONDS)
    LOG.warning(
        "tasks did not end when cancelled, and are left: %s", ", ".join(sorted(task.get_name() for task in left))
    )
