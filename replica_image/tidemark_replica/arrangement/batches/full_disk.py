"""A full disk as DiskFull, with the disk and what to do; other file errors pass unchanged."""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path

from tidemark_replica.arrangement.errors import DiskFull


@contextmanager
def raising_disk_full(folder: Path) -> Iterator[None]:
    """Raise DiskFull if a file in the folder cannot be written because its disk is full."""
    try:
        yield
    except OSError as cause:
        if cause.errno in (ENOSPC, EDQUOT):
            raise DiskFull(
                f"the disk of {folder} is full: give the replica more scratch, or keep less state"
            ) from cause
        raise
