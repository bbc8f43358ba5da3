"""Leases: a reader announces that it still reads, and vacuum waits.

A lease is a small file `_tidemark/leases/<id>.json` with a version and an expiry. While a lease of version v lives, no
file that version v or a later one refers to is deleted. Listings that are read within vacuum's grace period need no
lease.
"""

from __future__ import annotations

import time
import uuid
from types import TracebackType

from tidemark_persist.errors import StorageError
from tidemark_persist.storage.storage import OWN_DIR, Storage

LEASE_DIR = f"{OWN_DIR}/leases"
LEASE_SECONDS = 3600.0


class Lease:
    """Keeps a version from vacuum until released or expired. A context manager."""

    def __init__(self, storage: Storage, version: int, seconds: float = LEASE_SECONDS) -> None:
        self.version = version
        self._storage = storage
        self._seconds = seconds
        self._path = f"{LEASE_DIR}/{uuid.uuid4().hex}.json"
        self.renew()

    def renew(self) -> None:
        """Extends the lease by its duration. A reader that needs longer calls this well before the end."""
        now = time.time()
        expires_ms = int((now + self._seconds) * 1000)
        self._storage.write_json(self._path, {"version": self.version, "expires_ms": expires_ms})
        self._renewed = now

    def keep(self) -> None:
        """Extends the lease where a third of its duration has passed. A reader that calls this often needs only a short
        lease, which ends soon after its process has died. Raises StorageError where two thirds have passed, and the
        store still fails."""
        passed = time.time() - self._renewed
        if passed > self._seconds / 3:
            try:
                self.renew()
            except StorageError:
                if passed > self._seconds * 2 / 3:
                    raise

    def release(self) -> None:
        """Releases the lease; may be called twice."""
        self._storage.remove(self._path)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def oldest_leased(storage: Storage) -> int | None:
    """The oldest version under a live lease. Expired leases are removed on the way."""
    versions = []
    for file in storage.list(LEASE_DIR):
        if not file.path.endswith(".json"):
            continue  # a draft: its reader lists files only after the lease is written
        lease = storage.read_json(file.path)
        if lease is None:
            continue  # the holder released the lease meanwhile
        if lease["expires_ms"] < time.time() * 1000:
            storage.remove(file.path)
        else:
            versions.append(int(lease["version"]))
    return min(versions, default=None)
