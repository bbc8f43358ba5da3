"""The watchdog ends a process whose command loop makes no progress.

    loop       round  round  round ────(stuck)────────────────
    watchdog   check  check  check  check  check  ...  CHECKS_MAX checks without a round ──► all stacks, exit code 12

The watchdog counts its own checks and does not read the clock, so a process that was stopped or starved is not counted
as stuck. The command loop waits for locks and clients only briefly, but sometimes for a disk; ten minutes of checks
outlast a disk or file server that recovers. The process is then started again, and its log has the stacks.
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
CHECKS_MAX = 600
PAUSE_SECONDS = 1.0
DUMP_SECONDS_MAX = 30.0


def exit_stuck() -> None:
    """Logs the stacks of all threads and exits with EXIT_STUCK. A second thread exits after DUMP_SECONDS_MAX in case
    the log is what is stuck. The JVM and the step workers end with the process."""
    threading.Thread(target=_force_exit, name="watchdog's end", daemon=True).start()
    LOG.critical("the command loop made no progress for %d checks; the stacks of all threads follow", CHECKS_MAX)
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_STUCK)


def _force_exit() -> None:
    time.sleep(DUMP_SECONDS_MAX)
    os._exit(EXIT_STUCK)


class Watchdog:
    """Checks on a thread of its own from `start` until `stop`."""

    def __init__(self, rounds: Callable[[], int], stuck: Callable[[], None] = exit_stuck) -> None:
        """`rounds` counts the rounds of the loop; `stuck` is called when the count stands still."""
        self._rounds, self._stuck = rounds, stuck
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stops checking: the loop has ended on purpose."""
        self._stopped.set()

    def _watch(self) -> None:
        seen, idle = self._rounds(), 0
        while idle < CHECKS_MAX:
            if self._stopped.wait(PAUSE_SECONDS):
                return
            rounds = self._rounds()
            seen, idle = rounds, (idle + 1 if rounds == seen else 0)
        self._stuck()
