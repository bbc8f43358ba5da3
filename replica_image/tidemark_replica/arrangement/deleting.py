"""Files that are nobody's any more go on a thread of their own: where the disk is slow, no commit waits for it.

    commit, end of a pin ──names──> waiting ──the thread──> deleted
                                       └── too many wait, no thread can be started, the process dies:
                                           they stay for a sweep, or for the next incarnation

Nothing depends on when a file goes: no manifest and no pin has it, and its name is never used again.
"""

import logging
import threading
from collections.abc import Callable, Sequence

LOG = logging.getLogger(__name__)
FILES_MOST = 65_536
"""That may wait. A commit replaces a handful."""


class Deleting:
    """The thread is there for as long as something waits."""

    def __init__(self, delete: Callable[[Sequence[str]], None]) -> None:
        self._delete = delete
        self._lock = threading.RLock()  # a collection within it may end a pin, whose files come here
        self._waiting: list[str] = []
        self._runs, self._closed = False, False

    def add(self, files: Sequence[str]) -> None:
        """Returns at once."""
        with self._lock:
            if self._closed or not files or len(self._waiting) + len(files) > FILES_MOST:
                return
            self._waiting += files
            if not self._runs:
                self._runs = self._started()

    def close(self) -> None:
        """What waits stays; what is being deleted is not waited for."""
        with self._lock:
            self._closed, self._waiting = True, []

    def _started(self) -> bool:
        try:
            threading.Thread(target=self._run, name="delete files of state", daemon=True).start()
        except RuntimeError:  # the system allows no more threads now; the next ones are tried again with these
            return False
        return True

    def _run(self) -> None:
        while files := self._taken():
            try:
                self._delete(files)
            except Exception:
                LOG.exception("%d files of state stay for a sweep", len(files))

    def _taken(self) -> Sequence[str]:
        """All that waits; none: the thread ends."""
        with self._lock:
            files, self._waiting = self._waiting, []
            self._runs = bool(files)
            return files
