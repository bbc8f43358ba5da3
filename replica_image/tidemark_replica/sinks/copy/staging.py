"""A folder for one attempt at a copy on a disk, which is renamed to the target as a whole, or removed.

    .staging/<attempt>.lock   locked while the attempt's process lives
    .staging/<attempt>/       its files; renamed when all of them are written and synced

A free lock marks an attempt whose process died. The next attempt of any process removes its files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@contextmanager
def attempt(staging: Path) -> Iterator[Path]:
    """An empty folder, which is removed afterwards unless it was published."""
    staging.mkdir(parents=True, exist_ok=True)
    sweep(staging)
    lock, held = _locked(staging)
    folder = lock.with_suffix("")
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(held)


def publish(folder: Path, target: Path) -> bool:
    """Renames the folder to the target; also after a power failure the target is complete or absent. False where it
    exists."""
    for inside, _, files in os.walk(folder):
        for name in files:
            sync(Path(inside, name))
        sync(Path(inside))
    _make(target.parent)
    try:
        os.rename(folder, target)
    except OSError as error:
        if error.errno in _OCCUPIED:
            return False
        raise
    sync(target.parent)
    return True


def sync(path: Path) -> None:
    """Syncs the file, or the folder's list of names, to disk."""
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _make(folder: Path) -> None:
    """Makes the folder and its parents, synced."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sweep(staging: Path) -> None:
    """Removes files of dead attempts. It may be interrupted, and run beside others."""
    for lock in staging.glob("*.lock"):
        held = _try_lock(lock)
        if held is not None:
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
            os.close(held)


def _locked(staging: Path) -> tuple[Path, int]:
    """A new lock, held. If a sweep removed it before it was locked, another one is made."""
    while True:
        lock = staging / f"{uuid.uuid4().hex}.lock"
        lock.touch(exist_ok=False)
        held = _try_lock(lock)
        if held is not None:
            return lock, held


def _try_lock(lock: Path) -> int | None:
    """The locked open file; None where another process holds it, or the path has another file now."""
    try:
        held = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(held).st_ino == os.stat(lock).st_ino:
            return held
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(held)
    return None
