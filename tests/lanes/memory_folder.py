"""A folder in memory for the files of a lane's tests: its TMPDIR.

Tests write some hundred thousand small files and remove them. On a disk that costs CPU time: ext4 without a journal
looks for a free inode among all that were removed lately, which was half of what some files of tests took.

The folder is a tmpfs in a mount namespace of the lane's own, so it ends with the lane's last process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

PLACES = (Path("/mnt"), Path("/srv"))
"""Where it is mounted: the first one that is empty. As short as /tmp, as names of sockets are below it."""
MAX_BYTES = 8 << 30
"""All lanes together have taken half a gigabyte at most. A build of programs begins only where 5 GiB are free."""
_MOUNT = f'mount -t tmpfs -o size={MAX_BYTES},mode=1777 tests "$0" && export TMPDIR="$0" && exec "$@"'


def command_in_memory(command: list[str], place: Path) -> list[str]:
    """The command, in a namespace where an empty folder in memory is at `place`, which is its TMPDIR."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT, str(place), *command]


def place_in_memory(places: Iterable[Path] = PLACES, free_bytes: int = 2 * MAX_BYTES) -> Path | None:
    """Where a folder in memory can be mounted; None where this process may not, the machine has less than `free_bytes`
    of memory available, or what is mounted could not hold what tests write."""
    place = next((place for place in places if _is_empty(place)), None)
    if place is None or _available_bytes() < free_bytes:
        return None
    # versitygw gives files attributes
    tried = command_in_memory(["python3", "-c", "import os; os.setxattr(os.environ['TMPDIR'], 'user.a', b'')"], place)
    try:
        done = subprocess.run(tried, capture_output=True, check=False)
    except FileNotFoundError:  # there is no `unshare`: not Linux
        return None
    return place if done.returncode == 0 else None


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:
        return False


def _available_bytes() -> int:
    """The memory that processes may still take; 0 where Linux does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
