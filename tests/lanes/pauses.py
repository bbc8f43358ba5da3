"""Pauses: processes of the lanes stop for moments, as those of a busy machine do that is given to others.

A race that an idle machine never shows, such as a status that is read before it is written, shows soon. A process that
a test has stopped itself is left alone, unless the test stopped it within a pause: then the pause's end wakes it.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.lanes.processor_time import tree_of

AT_ONCE = 3
MEAN_SECONDS, MAX_SECONDS = 0.6, 5.0
POLL_SECONDS = 0.1
_HALTED = "TtZX"
"""States of processes that are stopped, traced or dead."""


@contextmanager
def pauses(pid: int) -> Iterator[None]:
    """Stop descendants of the process at random until the end of the block, where all of them go on."""
    ended = threading.Event()
    thread = threading.Thread(target=_pause, args=(pid, ended), name="pauses")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pause(pid: int, ended: threading.Event) -> None:
    paused: dict[int, float] = {}
    while not ended.wait(POLL_SECONDS):
        busy = {pid, *paused}  # a process that goes on now runs until the next round
        _resume(paused, time.monotonic())
        running = [one for one in tree_of(pid) if one not in busy and _runs(one)]
        if running and len(paused) < AT_ONCE:
            chosen = random.choice(running)
            with suppress(ProcessLookupError):
                os.kill(chosen, signal.SIGSTOP)
                paused[chosen] = time.monotonic() + min(random.expovariate(1 / MEAN_SECONDS), MAX_SECONDS)
    _resume(paused, float("inf"))


def _resume(paused: dict[int, float], now: float) -> None:
    for pid, until in list(paused.items()):
        if until <= now:
            del paused[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in _HALTED
    except OSError:
        return False
