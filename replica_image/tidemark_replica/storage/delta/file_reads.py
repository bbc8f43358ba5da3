"""The rows of files that the change from one version to another consists of.

    commits with cdc files        the rows of these files, each with its kind of change
    other commits, together       added files +, removed files -; the same file (and deletion vector) added and removed
                                  cancels without a look at it
    an update of a file's vector  the file is read once: rows that both vectors keep cancel

Deletion vectors, and the partitions that a removal leaves out, are looked up in a version that has the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemark_persist import Storage
from tidemark_replica.storage.delta.commit_log import DeltaCommit, FileAction
from tidemark_replica.storage.delta.stop import TABLE_REPLACED
from tidemark_replica.storage.delta.versions import LiveFile, TableVersion, open_version
from tidemark_replica.storage.errors import TableStopped


@dataclass(frozen=True)
class Share:
    """Rows of a file with a sign. `mask`: the rows that are kept; None: all."""

    sign: int
    mask: pa.BooleanArray | None = None


@dataclass
class FileRead:
    """A file to read. `version` needs it. `partition`: values by physical name, as texts or typed.

    `shares` empty: a file of changes, whose rows say what they are.
    """

    path: str
    size: int
    version: int
    partition: Mapping[str, Any]
    shares: list[Share] = field(default_factory=list)

    @property
    def only_adds(self) -> bool:
        return bool(self.shares) and all(share.sign > 0 for share in self.shares)


@dataclass
class _Net:
    """A file with one deletion vector: how often it was added less how often removed, and a version that has it."""

    action: FileAction
    version: int
    count: int = 0


def snapshot_reads(table: TableVersion, physical: Mapping[str, str]) -> list[FileRead]:
    """All rows of a version. `physical`: the physical names by logical name."""
    return [
        FileRead(f.path, f.size, table.version, _physical(f, physical), [Share(1, f.mask)])
        for f in table.files().values()
    ]


def change_reads(storage: Storage, commits: Sequence[DeltaCommit], physical: Mapping[str, str]) -> list[FileRead]:
    """The change of consecutive commits. Raises TableStopped, StorageError."""
    reads = [
        FileRead(action.path, action.size, commit.version, action.partition or {})
        for commit in commits
        for action in commit.changes
    ]
    changed = [net for net in _net(c for c in commits if not c.changes) if net.count]
    looked_up = _looked_up(storage, changed)
    by_path: dict[str, FileRead] = {}
    for net in changed:
        live = looked_up.get((net.version, net.action.path))
        partition = net.action.partition
        if partition is None:
            partition = _physical(live, physical) if live is not None else {}
        read = FileRead(net.action.path, net.action.size, net.version, partition)
        read = by_path.setdefault(net.action.path, read)
        read.shares.append(Share(net.count, live.mask if live is not None and net.action.vector else None))
    return [*reads, *by_path.values()]


def _net(commits: Iterable[DeltaCommit]) -> Iterable[_Net]:
    found: dict[tuple[str, str | None], _Net] = {}
    for commit in commits:
        for action in commit.removes:
            key = (action.path, action.vector)
            found.setdefault(key, _Net(action, commit.version - 1)).count -= 1
        for action in commit.adds:
            key = (action.path, action.vector)
            found.setdefault(key, _Net(action, commit.version)).count += 1
    return found.values()


def _looked_up(storage: Storage, changed: Iterable[_Net]) -> dict[tuple[int, str], LiveFile]:
    """The files that an action does not say everything about, by version and path."""
    wanted: dict[int, set[str]] = defaultdict(set)
    for net in changed:
        if net.action.vector is not None or net.action.partition is None:
            wanted[net.version].add(net.action.path)
    found: dict[tuple[int, str], LiveFile] = {}
    for version, paths in wanted.items():
        files = open_version(storage, version).files(paths)
        if absent := paths - files.keys():
            text = f"version {version} of {storage.location} lacks file {min(absent)}, which its log adds"
            raise TableStopped(TABLE_REPLACED, text)
        found |= {(version, path): file for path, file in files.items()}
    return found


def _physical(file: LiveFile, physical: Mapping[str, str]) -> dict[str, Any]:
    return {physical.get(name, name): value for name, value in file.partition.items()}
