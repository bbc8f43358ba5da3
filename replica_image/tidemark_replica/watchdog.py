"""The command loop comes round, or the process ends: nothing on it waits for anything, so one that stays away is stuck.

    loop       round  round  round ────(stuck)────────────────
    watchdog   look   look   look   look   look  ...  LOOKS of them without a round ──► every thread's stack, exit 12

It counts its own looks, and not the clock: who was stopped or starved for a while was not stuck. A replica that does
not answer would stay that way for ever; one that ends is started again, and its log says where it was.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)
EXIT_STUCK = 12
LOOKS = 120
PAUSE_SECONDS = 1.0


def end_the_process() -> None:
    """Past anything that could wait for what is stuck; the JVM and the step workers notice."""
    LOG.critical("the command loop has not come round for %d looks: this is where all threads are", LOOKS)
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_STUCK)


class Watchdog:
    """Looks from a thread of its own, from `start` until the process ends."""

    def __init__(self, rounds: Callable[[], int], stuck: Callable[[], None] = end_the_process) -> None:
        """`rounds`: how often the loop has come round; `stuck` is called once it does not any more."""
        self._rounds, self._stuck = rounds, stuck

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> None:
        pause, seen, idle = threading.Event(), self._rounds(), 0
        while idle < LOOKS:
            pause.wait(PAUSE_SECONDS)
            rounds = self._rounds()
            seen, idle = rounds, (idle + 1 if rounds == seen else 0)
        self._stuck()
