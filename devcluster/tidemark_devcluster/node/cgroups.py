"""The cgroup below which a node's pods are accounted: in every hierarchy of v1, in the one of v2, or in both.

kubelet wants it to be there. When the node has ended its cgroups are empty, but they stay until they are removed.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tidemark_devcluster.errors import StopFailed

REMOVE_SECONDS = 60.0
POLL_SECONDS = 0.05
INHERITED = ("cpuset.cpus", "cpuset.mems")
CONTROLLERS_V2 = ("cpuset", "cpu", "memory", "pids")


def hierarchies(mounts: str) -> list[tuple[Path, str]]:
    """Where cgroups are mounted, and whether as `cgroup` (v1) or `cgroup2`, by the text of `/proc/mounts`."""
    rows = [line.split() for line in mounts.splitlines()]
    return [(Path(row[1]), row[2]) for row in rows if len(row) > 2 and row[2] in ("cgroup", "cgroup2")]


def _mounted() -> list[tuple[Path, str]]:
    return hierarchies(Path("/proc/mounts").read_text(encoding="utf-8"))


def make(name: str) -> None:
    """Make the cgroup everywhere; on v1 a cpuset begins empty and takes its parent's processors."""
    for root, kind in _mounted():
        folder = root / name
        if kind == "cgroup2":
            available = (root / "cgroup.controllers").read_text(encoding="ascii").split()
            for controller in CONTROLLERS_V2:
                if controller in available:
                    (root / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        folder.mkdir(exist_ok=True)
        if kind == "cgroup":
            for inherited in INHERITED:
                if (root / inherited).exists():
                    (folder / inherited).write_text((root / inherited).read_text(encoding="ascii"), encoding="ascii")


def remove(name: str) -> None:
    """Remove the cgroup and all below it; waits for processes that are ending."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while left := [folder for root, _ in _mounted() for folder in _remove_tree(root / name)]:
        if time.monotonic() > deadline:
            raise StopFailed(f"the cgroup {left[0]} is in use: its file cgroup.procs names who is in it")
        time.sleep(POLL_SECONDS)


def _remove_tree(top: Path) -> Iterator[Path]:
    """Remove a tree from its leaves; yields what could not be removed yet."""
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            yield Path(folder)
