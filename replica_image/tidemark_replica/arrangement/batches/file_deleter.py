"""Deleting unused files on a thread of its own, so that no caller waits for a slow disk.

    commit, end of a pin, end of a step, drop ──removal──> waiting ──the thread──> done
                                                   └── the process ends: the files go with its scratch folder

No state depends on when a file is deleted: no manifest and no pin names it, and its name is never used again. A removal
may therefore be skipped, and run twice. Waiting removals are bounded by the files that scratch can hold.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

LOG = logging.getLogger(__name__)

Removal = Callable[[], None]


class FileDeleter:
    """Runs removals one after the other on a thread."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Removal | None] = SimpleQueue()
        """Its `put` may be called inside itself: garbage collection may end a pin."""
        threading.Thread(target=self._run, name="delete files of state", daemon=True).start()

    def add(self, removal: Removal) -> None:
        """Schedule a removal. Returns at once."""
        self._waiting.put(removal)

    def close(self) -> None:
        """End the thread after the waiting removals, which are not awaited."""
        self._waiting.put(None)

    def _run(self) -> None:
        for removal in iter(self._waiting.get, None):
            try:
                removal()
            except Exception:
                LOG.exception("files of state could not be deleted; a sweep tries again")
