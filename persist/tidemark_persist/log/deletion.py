"""Deletes a shard so that an interrupted deletion can be finished, and what it leaves is never taken for a shard.

1. the term is raised to the last one     every writer is stopped (`ShardDeleted`)
2. a tombstone names the owner            nobody creates or opens a shard here any more
3. data files, log entries, other files   in any order, until no more are found
4. the tombstone                          the location is free
5. empty folders, on a disk               a late writer makes none (`ShardDeleted`)
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from tidemark_persist.errors import ShardDeleted, ShardMismatch, ShardNotFound, StorageError
from tidemark_persist.log.delta_log import DeltaLog
from tidemark_persist.log.entry import OWNER, Change
from tidemark_persist.log.state import TableState
from tidemark_persist.log.transact import transact
from tidemark_persist.storage.storage import LOG_DIR, OWN_DIR, TOMBSTONE, Storage
from tidemark_persist.times import DELETED, ShardId

COMMON_NAMES = (LOG_DIR, OWN_DIR)
"""Folders whose files have the same names in every shard."""
SECONDS_MAX = 60.0
"""Seconds after which a deletion stops by itself. A caller that asked two processes knows that neither continues after
this time and the store's request timeout."""


def read_tombstone(storage: Storage) -> str | None:
    """The owner of the shard being deleted here, if one is."""
    tombstone = storage.read_json(TOMBSTONE)
    return None if tombstone is None else str(tombstone["shard"])


def refuse_deleted(storage: Storage, shard_id: str | None = None) -> None:
    """`ShardDeleted` while a deletion is unfinished; `ShardMismatch` if it is not the deletion of `shard_id`."""
    owner = read_tombstone(storage)
    if owner is not None and shard_id is not None and owner != shard_id:
        raise ShardMismatch(f"the table at {storage.location} belongs to shard {owner!r}, which is being deleted")
    if owner is not None:
        raise ShardDeleted(f"shard {storage.location} is being deleted; finish that first (`delete_shard`)")


def remove_everything(storage: Storage, shard_id: ShardId) -> None:
    """Deletes the shard, from wherever an earlier attempt stopped. Raises StorageError after SECONDS_MAX: a slow
    deletion must not remove files of a shard that is created after a faster one has finished."""
    until = time.monotonic() + SECONDS_MAX
    owner = read_tombstone(storage)
    if owner is None:
        owner = _write_tombstone(storage, shard_id, until)
        if owner is None:
            return
    if owner != shard_id:
        raise ShardMismatch(f"the table at {storage.location} belongs to shard {owner!r}, not to {shard_id!r}")
    remove_marked(storage, {"shard": shard_id}, lambda: _remaining_files(storage), COMMON_NAMES, until)


def remove_marked(
    storage: Storage,
    tombstone: Mapping[str, str],
    list_files: Callable[[], Sequence[str]],
    common_names: str | tuple[str, ...],
    until: float,
) -> None:
    """Removes the files of a location that has the tombstone, and the tombstone last. `common_names`: folders whose
    files have the same names in the next table. Raises StorageError after `until`, in monotonic seconds.
    """
    while left := list_files():  # a writer may add files during a listing
        for path in left:
            if path.startswith(common_names) and storage.read_json(TOMBSTONE) != tombstone:
                return  # another process has finished; the files are of the next table
            check_deadline(storage, until)
            storage.remove(path)
    check_deadline(storage, until)
    storage.remove(TOMBSTONE)
    storage.remove_empty_folders()


def check_deadline(storage: Storage, until: float) -> None:
    """Raises StorageError after `until`, in monotonic seconds."""
    if time.monotonic() > until:
        raise StorageError(f"{storage.location} is not gone after {SECONDS_MAX:.0f} s; delete it again to go on")


def _remaining_files(storage: Storage) -> list[str]:
    """The paths of the files that are to be removed before the tombstone."""
    folders = ("", LOG_DIR, f"{OWN_DIR}/leases", OWN_DIR)
    return [file.path for folder in folders for file in storage.list(folder) if file.path != TOMBSTONE]


def _write_tombstone(storage: Storage, shard_id: ShardId, until: float) -> str | None:
    """Stops all writers and writes the tombstone. Returns the owner; None if there is no shard."""
    try:
        log = DeltaLog(storage)
    except ShardNotFound:
        return None
    owner = str(log.table.metadata().configuration.get(OWNER))
    if owner != shard_id:
        return owner

    def decide(state: TableState) -> Change | None:
        return None if state.frontiers.term == DELETED else Change(uuid.uuid4().hex, term=DELETED)

    log.follow()
    transact(log, decide)
    check_deadline(storage, until)
    storage.write_json(TOMBSTONE, {"shard": owner})
    return owner
