"""The log of a Delta table, commit by commit: `_delta_log/<version>.json` as the Delta protocol defines it.

A commit changes rows in one of two ways. Where it has `cdc` files, these hold all of its changes, unless it is an
UPDATE by delta-rs. Otherwise the rows of the files that it adds appear and those of the files that it removes
disappear; actions with `dataChange` false (OPTIMIZE) move rows between files and are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_persist import Storage
from tidemark_replica.storage.delta.stop import FILE_UNREADABLE
from tidemark_replica.storage.errors import TableStopped


@dataclass(frozen=True)
class FileAction:
    """A file that a commit adds, removes, or holds changes in. `path` as in the log (URL-encoded, relative).

    `partition`: values as texts, by physical name; None where the action leaves them out. `vector`: the identity of the
    deletion vector.
    """

    path: str
    size: int
    partition: Mapping[str, str | None] | None
    vector: str | None


@dataclass(frozen=True)
class DeltaCommit:
    """One commit. `metadata` and `protocol`: the log's own objects, None where the commit does not set them."""

    version: int
    digest: str
    adds: tuple[FileAction, ...]
    removes: tuple[FileAction, ...]
    changes: tuple[FileAction, ...]
    metadata: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None

    @property
    def bytes_to_read(self) -> int:
        """The size of the files whose rows the change consists of."""
        return sum(file.size for file in self.changes or (*self.adds, *self.removes))


def log_path(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def read_commit(storage: Storage, version: int) -> DeltaCommit | None:
    """The commit; None where the log has no such entry (any more). Raises StorageError, TableStopped."""
    text = storage.read(log_path(version))
    if text is None:
        return None
    try:
        actions = list(_actions(text))
        return DeltaCommit(
            version=version,
            digest=hashlib.sha256(text).hexdigest()[:32],
            adds=tuple(_file(a) for kind, a in actions if kind == "add" and a.get("dataChange", True)),
            removes=tuple(_file(a) for kind, a in actions if kind == "remove" and a.get("dataChange", True)),
            changes=() if _is_update_of_delta_rs(actions) else tuple(_file(a) for kind, a in actions if kind == "cdc"),
            metadata=next((a for kind, a in actions if kind == "metaData"), None),
            protocol=next((a for kind, a in actions if kind == "protocol"), None),
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise TableStopped(FILE_UNREADABLE, f"{log_path(version)} is no entry of a Delta log: {error}") from None


def _is_update_of_delta_rs(actions: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether the commit is an UPDATE by delta-rs. Its cdc files lack new rows that other rows of the files that it
    rewrote equal, and these rows count once less then. The files that it adds and removes are right."""
    infos = [action for kind, action in actions if kind == "commitInfo" and action.get("operation") == "UPDATE"]
    names = (str(info.get(name)) for info in infos for name in ("engineInfo", "clientVersion"))
    return any(name.startswith("delta-rs") for name in names)


def _actions(text: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in text.splitlines():
        if line.strip():
            yield from json.loads(line).items()


def _file(action: Mapping[str, Any]) -> FileAction:
    vector = action.get("deletionVector")
    identity = None
    if vector is not None:
        identity = f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"
    return FileAction(action["path"], action.get("size") or 0, action.get("partitionValues"), identity)
