"""Disk use of a system: shards, arrangements, running steps, logs, the control plane's own state."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark_persist import EMPTY, PersistError, open_shard


@dataclass(frozen=True)
class Size:
    """Files under a folder."""

    files: int = 0
    bytes: int = 0


def size_of(folder: Path) -> Size:
    """All files below; what vanishes meanwhile does not count."""
    files = size = 0
    for path in _files(folder):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
        files += 1
    return Size(files, size)


def shards(location: Path) -> list[Path]:
    """The shards below a folder."""
    return sorted(path.parent for path in location.rglob("_delta_log"))


def shard_measures(shard: Path) -> dict[str, float]:
    """One shard: files of data and of log, size, and how long ago its upper and its since are."""
    log, all_of_it = size_of(shard / "_delta_log"), size_of(shard)
    measured = {
        "log files": float(log.files),
        "data files": float(all_of_it.files - log.files),
        "MiB": all_of_it.bytes / 2**20,
    }
    try:
        state = open_shard(str(shard)).state()
    except PersistError:
        return measured  # deleted meanwhile
    now = time.time()
    if state.upper != EMPTY:
        measured |= {"upper s ago": now - state.upper / 1000, "since s ago": now - state.since / 1000}
    return measured


def arrangements(operator_state: Path) -> dict[str, Size]:
    """Every arrangement of every replica, by its name."""
    folders = operator_state.glob("replicas/*/scratch/*/arrangements/*")
    return {folder.name: size_of(folder) for folder in folders if folder.is_dir()}


def scratch_measures(operator_state: Path) -> dict[str, float]:
    """The sizes of what replicas keep beside their arrangements."""
    steps = operator_state.glob("replicas/*/scratch/*/dataflows/*/steps/*")
    measured = {"step folders": float(len(list(steps)))}
    for name in ("spark", "sources"):
        found = [size_of(folder) for folder in operator_state.glob(f"replicas/*/scratch/*/{name}")]
        measured[f"scratch/{name}: files"] = float(sum(size.files for size in found))
        measured[f"scratch/{name}: MiB"] = sum(size.bytes for size in found) / 2**20
    return measured


def logs_kib(root: Path) -> float:
    """All logs below the folder."""
    logs = [path for path in _files(root) if path.name == "log" or path.suffix == ".log"]
    return sum(_length(path) for path in logs) / 2**10


def etcd_mib(control_plane: Path) -> float:
    """The size of etcd's data, in MiB."""
    return size_of(control_plane / "etcd").bytes / 2**20


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)
