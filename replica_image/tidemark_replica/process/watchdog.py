"""The command loop comes round, or the process ends: it waits for no lock or client for long, and for a disk sometimes.

    loop       round  round  round ────(stuck)────────────────
    watchdog   look   look   look   look   look  ...  LOOKS of them without a round ──► every thread's stack, exit 12

It counts its own looks, and not the clock: who was stopped or starved for a while was not stuck. Ten minutes of them
outlast a disk or a file server that comes back. A replica that does not answer would stay that way for ever; one that
ends is started again, and its log says where it was.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)
EXIT_STUCK = 12
LOOKS = 600
PAUSE_SECONDS = 1.0
WORDS_SECONDS = 30.0


def end_the_process() -> None:
    """Past anything that could wait for what is stuck, be it the log itself; the JVM and the step workers notice."""
    threading.Thread(target=_end_soon, name="watchdog's end", daemon=True).start()
    LOG.critical("the command loop has not come round for %d looks: this is where all threads are", LOOKS)
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_STUCK)


def _end_soon() -> None:
    time.sleep(WORDS_SECONDS)
    os._exit(EXIT_STUCK)


class Watchdog:
    """Looks from a thread of its own, from `start` until `stop`, or the end of the process."""

    def __init__(self, rounds: Callable[[], int], stuck: Callable[[], None] = end_the_process) -> None:
        """`rounds`: how often the loop has come round; `stuck` is called once it does not any more."""
        self._rounds, self._stuck = rounds, stuck
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """The loop is to come round no more, and what came after it is done."""
        self._stopped.set()

    def _watch(self) -> None:
        seen, idle = self._rounds(), 0
        while idle < LOOKS:
            if self._stopped.wait(PAUSE_SECONDS):
                return
            rounds = self._rounds()
            seen, idle = rounds, (idle + 1 if rounds == seen else 0)
        self._stuck()
