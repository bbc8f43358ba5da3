"""Deleting unused files on a thread of its own, so that no caller waits for a slow disk.

    commit, end of a pin, end of a step, drop ──removal──> waiting ──the thread──> done
                                         └── too many wait, no thread can be started, the process dies:
                                             the files stay for a sweep, or for the next incarnation

No state depends on when a file is deleted: no manifest and no pin names it, and its name is never used again. A removal
may therefore be skipped, and run twice.
"""

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

LOG = logging.getLogger(__name__)
MAX_WAITING = 65_536
"""Removals that may wait; more are dropped. A step leaves one or two."""
LINGER_SECONDS = 10.0
THREAD = "delete files of state"

Removal = Callable[[], None]


class FileDeleter:
    """Runs removals on a thread, which ends LINGER_SECONDS after the last one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # garbage collection inside it may end a pin, which adds removals
        self._waiting: SimpleQueue[Removal] = SimpleQueue()
        self._runs, self._closed = False, False

    def add(self, removal: Removal) -> None:
        """Schedule a removal. Returns at once."""
        with self._lock:
            if self._closed or self._waiting.qsize() >= MAX_WAITING:
                return
            self._waiting.put(removal)
            if not self._runs:
                self._runs = self._start_thread()

    def close(self) -> None:
        """Drop the waiting removals. A removal that runs is not awaited."""
        with self._lock:
            self._closed, self._waiting = True, SimpleQueue()

    def _start_thread(self) -> bool:
        try:
            threading.Thread(target=self._run, name=THREAD, daemon=True).start()
        except RuntimeError:  # the system allows no more threads now; the next removal tries again, with this one
            return False
        return True

    def _run(self) -> None:
        while (removal := self._next()) is not None:
            try:
                removal()
            except Exception:
                LOG.exception("files of state could not be deleted; a sweep tries again")

    def _next(self) -> Removal | None:
        """The removal that has waited longest; None ends the thread."""
        while True:
            try:
                return self._waiting.get(timeout=LINGER_SECONDS)
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._runs = False
                        return None
