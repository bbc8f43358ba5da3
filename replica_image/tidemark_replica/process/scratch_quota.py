"""The disk usage of scratch on a volume of limited size. Kubernetes evicts a pod that exceeds its volume, and its state
with it.

    0 ──────────── arrangements: counted byte by byte ─────────────► 7/8 ────► 15/16 ────► size of the volume
                   all files in scratch: measured periodically       scarce    full

`ArrangementStore` counts the bytes of arrangements and limits them to 7/8 of the volume. Other files are not counted:
files between fragments, staged output of sinks, copies, uncommitted steps, and Spark's files if they have no folder of
their own. A thread therefore measures the disk usage of the whole folder about once a second. Beyond 7/8 (*scarce*),
hydrations, large steps and large merges fail and are retried. Beyond 15/16 (*full*), every step fails and is retried.
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
from tidemark_replica.storage.written.spool import SPOOL_BYTES

LOG = logging.getLogger(__name__)
MEASURE_SECONDS_MIN = 1.0
MEASURE_SECONDS_BELOW_HALF = 5.0
"""Seconds between measurements while at most half of the volume is used."""
PAUSE_FACTOR, PAUSE_SECONDS_MAX = 30, 2.0
"""The pause after a measurement is this many times its duration, and at most PAUSE_SECONDS_MAX above half of the
volume, because scratch fills fast."""
FAILURES_MAX = 3
"""The usage counts as unknown after so many failed measurements in a row."""
BLOCK = 512


class ScratchQuota:
    """The quota of a folder on a volume of `size` bytes. None: the volume is unlimited, and a full disk fails the write
    itself."""

    def __init__(self, folder: Path, size: int | None) -> None:
        self._folder, self._size = folder, size
        self._closed = threading.Event()

    @property
    def arrangement_bytes(self) -> int | None:
        """Bytes that arrangements may use; None: no limit."""
        return None if self._size is None else self._size - self._size // 8

    @property
    def stash_bytes(self) -> int:
        """Bytes that stashed answers may use."""
        return STASH_BYTES if self._size is None else min(STASH_BYTES, self._size // 4)

    @property
    def spool_bytes(self) -> int:
        """Bytes that calls which write rows may use until their tick."""
        return SPOOL_BYTES if self._size is None else min(SPOOL_BYTES, self._size // 4)

    def watch(self, report: Callable[[bool, bool], None], unnamed: Callable[[], int]) -> None:
        """Measures from now on until `close`, on a thread. `report` receives (scarce, full) after each measurement;
        `unnamed` gives the bytes of open files that have no name."""
        if self._size is not None:
            run = threading.Thread(
                target=self._run, args=[self._size, report, unnamed], name="scratch room", daemon=True
            )
            run.start()

    def close(self) -> None:
        self._closed.set()

    def _run(self, size: int, report: Callable[[bool, bool], None], unnamed: Callable[[], int]) -> None:
        pause, failures = 0.0, 0
        while not self._closed.wait(pause):
            began = time.monotonic()
            try:
                total = disk_usage(self._folder) + unnamed()
                report(total > size - size // 8, total > size - size // 16)
                failures = 0
            except OSError as error:  # the replica ends and removes the folder, or the disk fails
                total, failures = size, failures + 1
                if failures == FAILURES_MAX:
                    _report_unknown(report, error)
            pause = pause_after(time.monotonic() - began, below_half=total <= size // 2)


def pause_after(took: float, *, below_half: bool) -> float:
    """Seconds until the next measurement, after one that took `took` seconds."""
    return (
        MEASURE_SECONDS_BELOW_HALF
        if below_half
        else max(MEASURE_SECONDS_MIN, min(PAUSE_FACTOR * took, PAUSE_SECONDS_MAX))
    )


def _report_unknown(report: Callable[[bool, bool], None], error: OSError) -> None:
    """Reports neither scarce nor full: the last report may be out of date, and steps must not wait for ever."""
    LOG.warning("the disk usage of scratch cannot be measured, so no step is refused because of it: %s", error)
    with suppress(OSError):
        report(False, False)


def disk_usage(folder: Path) -> int:
    """Bytes on disk of all files in the folder. Files that appear or vanish meanwhile may or may not count; unreadable
    ones do not. Raises OSError where the folder itself cannot be read."""
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
