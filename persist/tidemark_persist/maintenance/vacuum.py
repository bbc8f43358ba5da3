"""Vacuum: mark now, sweep later.

A round sweeps what the round before marked, and marks anew:

    mark    files that the current version V does not refer to, and that were seen to be removed, or are so
            old that no writer can still be about to commit them            -> _tidemark/vacuum.json
    sweep   (a grace period later) marked files that are still not referred to, unless a lease older than V
            lives

So a file stays for at least the grace period after the last version that referred to it, whichever process removed
it, and whether or not that process still lives. A round may be repeated or interrupted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tidemark_persist.maintenance.lease import oldest_leased
from tidemark_persist.storage.storage import VACUUM_MARK, Storage

MARKED_MAX = 100_000


@dataclass(frozen=True)
class VacuumMark:
    """Files that nothing referred to at `version`, noted at `at_ms`."""

    version: int
    at_ms: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class TableFiles:
    """The table as vacuum sees it: its version, its live files, and files that were seen to be removed."""

    version: int
    live: frozenset[str]
    removed: frozenset[str]


def is_due(storage: Storage, grace_seconds: float) -> bool:
    """Whether the last round was at least a grace period ago, or none was."""
    mark = read_mark(storage)
    return mark is None or _age_seconds(mark.at_ms) >= grace_seconds


def sweep(storage: Storage, now: TableFiles, grace_seconds: float) -> list[str]:
    """Deletes what the last round marked, if that was long enough ago. Returns the deleted paths."""
    mark = read_mark(storage)
    if mark is None or _age_seconds(mark.at_ms) < grace_seconds:
        return []
    leased = oldest_leased(storage)
    if leased is not None and leased < mark.version:
        return []
    gone = [path for path in mark.paths if path not in now.live]
    for path in gone:
        storage.remove(path)
    return gone


def mark(storage: Storage, now: TableFiles, orphan_age_seconds: float) -> VacuumMark:
    """Notes the files that are not referred to. Files of unknown origin wait `orphan_age_seconds` first."""
    garbage = [
        file.path
        for file in storage.list("")
        if file.path.endswith(".parquet")
        and file.path not in now.live
        and (file.path in now.removed or _age_seconds(file.modified_ms) >= orphan_age_seconds)
    ]
    noted = VacuumMark(now.version, int(time.time() * 1000), tuple(garbage[:MARKED_MAX]))
    storage.write_json(VACUUM_MARK, {"version": noted.version, "at_ms": noted.at_ms, "paths": noted.paths})
    return noted


def read_mark(storage: Storage) -> VacuumMark | None:
    """The mark of the last round."""
    text = storage.read_json(VACUUM_MARK)
    return None if text is None else VacuumMark(text["version"], text["at_ms"], tuple(text["paths"]))


def _age_seconds(at_ms: int) -> float:
    return time.time() - at_ms / 1000
