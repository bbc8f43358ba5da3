"""Files that are nobody's any more go on a thread of their own: where the disk is slow, nothing else waits for it.

    commit, end of a pin, step that is over, drop ──removal──> waiting ──the thread──> done
                                       └── too many wait, no thread can be started, the process dies:
                                           they stay for a sweep, or for the next incarnation

Nothing depends on when a file goes: no manifest and no pin has it, and its name is never used again. So a removal may
be left undone, and done twice.
"""

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

LOG = logging.getLogger(__name__)
MAX_WAITING = 65_536
"""That may wait. A step leaves one or two."""
LINGER_SECONDS = 10.0
THREAD = "delete files of state"

Removal = Callable[[], None]


class FileDeleter:
    """The thread is there for as long as something waits, and a little longer, as the next step will have something."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection within it may end a pin, whose files come here
        self._waiting: SimpleQueue[Removal] = SimpleQueue()
        self._runs, self._closed = False, False

    def add(self, removal: Removal) -> None:
        """Returns at once."""
        with self._lock:
            if self._closed or self._waiting.qsize() >= MAX_WAITING:
                return
            self._waiting.put(removal)
            if not self._runs:
                self._runs = self._started()

    def close(self) -> None:
        """What waits stays; what is under way is not waited for."""
        with self._lock:
            self._closed, self._waiting = True, SimpleQueue()

    def _started(self) -> bool:
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
                LOG.exception("files of state stay for a sweep")

    def _next(self) -> Removal | None:
        """What has waited longest; None: the thread ends."""
        while True:
            try:
                return self._waiting.get(timeout=LINGER_SECONDS)
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._runs = False
                        return None
