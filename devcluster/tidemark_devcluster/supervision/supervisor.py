"""The loop that restarts what has died, with a back-off that doubles from 1 to 60 s.

    group ── died? ──no──► after a minute the back-off is reset
               └─yes──► repair now; again at the earliest after 1, 2, 4 ... 60 s

The first restart is immediate. A repair that fails is tried again after the same pauses, for ever: each try costs one
line of the log and one start a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tidemark_devcluster.errors import DevClusterError
from tidemark_devcluster.supervision.record import RestartRecord

LOG = logging.getLogger(__name__)
POLL_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
HEALTHY_SECONDS = 60.0


class Group(Protocol):
    """Programs that are repaired together."""

    def died(self) -> Sequence[str]:
        """The programs that were started and have ended, though nobody stopped them."""

    def repair(self) -> Sequence[str]:
        """Start again what has died; return the programs that were started. Raises DevClusterError."""


class RepairBackoff:
    """The time of the next repair. Times are in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._last = float("-inf")

    def allows(self, now: float) -> bool:
        return now >= self._last + self._pause

    def attempted(self, now: float) -> None:
        """A repair begins. The pause after it is twice the one before it, or the first after a healthy minute."""
        healthy = now - self._last > self._pause + HEALTHY_SECONDS
        self._pause = FIRST_PAUSE_SECONDS if healthy else min(2 * self._pause, MAX_PAUSE_SECONDS)
        self._last = now


class Supervisor:
    """Repairs groups in their order: an earlier one is what later ones need."""

    def __init__(
        self, groups: Sequence[Group], record: RestartRecord, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._groups = [(group, RepairBackoff()) for group in groups]
        self._record, self._clock = record, clock

    def run(self, ended: threading.Event) -> None:
        """Supervise until `ended` is set."""
        while not ended.wait(POLL_SECONDS):
            self.step()

    def step(self) -> None:
        """Look at each group once, and repair it if it is its time."""
        for group, backoff in self._groups:
            died = group.died()
            if not died or not backoff.allows(self._clock()):
                continue
            backoff.attempted(self._clock())
            LOG.warning("%s ended: starting again", ", ".join(died))
            try:
                restarted = group.repair()
            except DevClusterError as error:
                LOG.error("%s cannot be started: %s", ", ".join(died), error)
                continue
            self._record.count(restarted)
            LOG.warning("%s started again", ", ".join(restarted) or "nothing")
