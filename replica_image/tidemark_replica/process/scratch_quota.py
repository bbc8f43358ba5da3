"""How full scratch is, where its volume has an end: a pod that goes beyond it is evicted, and all that it had computed.

    0 ──────────── arrangements: counted, byte by byte ────────────► 7/8 ────► 15/16 ────► the end
                   all that is in scratch: looked at now and then    scarce    full

What steps keep is counted, and may take 7/8 (`ArrangementStore`). What else is there is not: files that fragments leave
for each other, what sinks stage, copies, steps that are not committed, Spark's own where it has no other folder. So all
of it is added up as it lies on the disk, every second or so, by a thread. Where it is past 7/8, what takes much ends
with an error and is tried again: a hydration, a large step, a large merge. Past 15/16 every step does.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tidemark_replica.peek.result_stash import STASH_BYTES

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
CALM_SECONDS = 5.0
"""While no more than half is taken."""
REST, REST_SECONDS_MOST = 30, 2.0
"""So many times as long as it looked, it does not; but past half it never rests for longer, as scratch fills fast."""
FAILURES_MOST = 3
"""After so many looks in a row that failed nothing is known."""
BLOCK = 512


class ScratchRoom:
    """Of the folder, whose volume holds `size` bytes; None: as much as the disk, which says so itself."""

    def __init__(self, folder: Path, size: int | None) -> None:
        self._folder, self._size = folder, size
        self._closed = threading.Event()

    @property
    def for_arrangements(self) -> int | None:
        """Bytes; None: any number."""
        return None if self._size is None else self._size - self._size // 8

    @property
    def for_answers(self) -> int:
        """Bytes of large ones that wait to be fetched."""
        return STASH_BYTES if self._size is None else min(STASH_BYTES, self._size // 4)

    def watch(self, tell: Callable[[bool, bool], None], unnamed: Callable[[], int]) -> None:
        """From now on until it is closed, on a thread of its own. `tell`: whether room is scarce, and whether there is
        none; `unnamed`: bytes of files that have no name."""
        if self._size is not None:
            run = threading.Thread(target=self._run, args=[self._size, tell, unnamed], name="scratch room", daemon=True)
            run.start()

    def close(self) -> None:
        self._closed.set()

    def _run(self, size: int, tell: Callable[[bool, bool], None], unnamed: Callable[[], int]) -> None:
        pause, failures = 0.0, 0
        while not self._closed.wait(pause):
            began = time.monotonic()
            try:
                total = taken(self._folder) + unnamed()
                tell(total > size - size // 8, total > size - size // 16)
                failures = 0
            except OSError as error:  # the folder goes as the replica ends; or the disk is full, and says so itself
                total, failures = size, failures + 1
                if failures == FAILURES_MOST:
                    _nothing_known(tell, error)
            pause = pause_after(time.monotonic() - began, calm=total <= size // 2)


def pause_after(took: float, *, calm: bool) -> float:
    """Until the next look, after one that took so long."""
    return CALM_SECONDS if calm else max(LOOK_SECONDS, min(REST * took, REST_SECONDS_MOST))


def _nothing_known(tell: Callable[[bool, bool], None], error: OSError) -> None:
    """What was told last may hold no more, and nobody is to wait for room for ever."""
    LOG.warning("how full scratch is cannot be told, so no step is refused for that: %s", error)
    with suppress(OSError):
        tell(False, False)


def taken(folder: Path) -> int:
    """Bytes on the disk of all that is in it; what comes and goes meanwhile may count or not, and what cannot be read
    does not. Raises OSError where the folder itself cannot."""
    os.stat(folder)
    total, folders = 0, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                total += _blocks(entry) * BLOCK
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return total


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks
    except OSError:
        return 0
