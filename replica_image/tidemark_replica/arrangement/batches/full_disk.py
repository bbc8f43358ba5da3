"""A disk without room, said so that one knows which and what to do; all other errors of files are left as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path

from tidemark_replica.arrangement.errors import DiskFull


@contextmanager
def raising_disk_full(folder: Path) -> Iterator[None]:
    """Raise DiskFull where a file in the folder cannot be written for want of room."""
    try:
        yield
    except OSError as cause:
        if cause.errno in (ENOSPC, EDQUOT):
            raise DiskFull(
                f"no room is left on the disk of {folder}: give the replica more scratch, or keep less state"
            ) from cause
        raise
