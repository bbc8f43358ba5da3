"""A folder for one attempt at a copy, which ends as a whole at its target, or not at all.

    .staging/<attempt>.lock   held while the attempt's process lives
    .staging/<attempt>/       its files; renamed to their place when all of them are there, and on disk

What is left of an attempt whose process died is known by its lock being free: the next attempt, anybody's, takes it
away.
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
    """An empty folder, gone afterwards unless it has found its target."""
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
    """Puts the folder at its target, in one move: also after a power failure all of it is there, or nothing. False
    where something is there already."""
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
    """What the file holds, or which names the folder has, is on disk."""
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _make(folder: Path) -> None:
    """The folder, and those that it is in."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sweep(staging: Path) -> None:
    """Takes away what dead attempts left. Harmless when cut short, and beside others that do the same."""
    for lock in staging.glob("*.lock"):
        held = _try_lock(lock)
        if held is not None:
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
            os.close(held)


def _locked(staging: Path) -> tuple[Path, int]:
    """A new lock, held. One that a sweep took for a dead one's, between its making and its locking, is given up."""
    while True:
        lock = staging / f"{uuid.uuid4().hex}.lock"
        lock.touch(exist_ok=False)
        held = _try_lock(lock)
        if held is not None:
            return lock, held


def _try_lock(lock: Path) -> int | None:
    """The open file, locked; None where another holds it, or it is not the one at that path any more."""
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
