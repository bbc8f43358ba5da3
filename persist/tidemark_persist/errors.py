"""Errors of shards.

PersistError
├── InvalidTime           a time, term or range that makes no sense: the caller's mistake
├── InvalidLocation       a location, or settings, that no shard can have
├── InvalidSchema         a schema that no shard can have
├── InvalidBatch          rows that do not fit the shard, or outside the range of times that is written
├── InvalidStagedFile     the same, in a file that another process wrote
├── ShardNotFound         there is no shard at the location
├── ShardMismatch         the location has another owner's shard, or another schema or format
├── ShardDeleted          the shard is being deleted and accepts no writes
├── ForeignCommit         another program changed the table: begin anew from the table as it is now
├── NotReadable           the time is before the since or not before the upper
├── PartGone              a file of a listing was deleted: take a new listing, under a lease; or it is lost
├── DiffOverflow          a multiplicity does not fit 64 bits
├── Fenced                a writer of a newer term took over: stop writing
├── IndeterminateCommit   the commit may or may not have landed: retry with the same commit id
├── StorageError          the disk or object store failed (`problem` says how); the shard is not known to be damaged
│   └── NotJson          a file is damaged, or another program wrote it
├── CommitForgotten       too late to learn whether the commit landed: continue from the present upper
└── Contention            every attempt lost its race; nothing was written: retry later
"""

from __future__ import annotations

from enum import Enum


class PersistError(Exception):
    """The root of all errors of this package."""


class InvalidTime(PersistError):
    """A time, term or range that makes no sense."""


class InvalidLocation(PersistError):
    """A location where no shard can be, or settings under which none would be safe."""


class InvalidSchema(PersistError):
    """A schema that a shard cannot have."""


class InvalidBatch(PersistError):
    """Rows that do not fit the shard or the range of times being written."""


class InvalidStagedFile(InvalidBatch):
    """A staged file that is missing, too old, or does not fit."""


class ShardNotFound(PersistError):
    """There is no shard at this location."""


class ShardMismatch(PersistError):
    """The table at this location is not the shard asked for."""


class ShardDeleted(PersistError):
    """The shard is being, or has been, deleted."""


class ForeignCommit(PersistError):
    """Another program changed the table, so that what was read before is not its past any more. The table is as that
    program left it; a caller that goes on from what it read begins anew. `is_certain`: False where the handle cannot
    tell whether there was a change."""

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class NotReadable(PersistError):
    """A time that cannot be read: before the since, or not before the upper."""


class PartGone(PersistError):
    """A file of an earlier listing no longer exists."""

    @staticmethod
    def is_told_by(text: str, location: str) -> bool:
        """Whether the text, which may come from another process, has this error of the shard at the location."""
        return f" of shard {location} {_IS_GONE}" in text

    @classmethod
    def of(cls, path: str, location: str) -> PartGone:
        """The error of a file of the shard at the location."""
        return cls(
            f"file {path} of shard {location} {_IS_GONE} (and a lease, if reading takes longer than the grace period "
            "of vacuum)"
        )


_IS_GONE = "is gone: take a new listing"


class DiffOverflow(PersistError):
    """The sum of a row's diffs does not fit a signed 64-bit integer."""


class Fenced(PersistError):
    """A writer of a newer term has taken over."""


class IndeterminateCommit(PersistError):
    """Whether the commit landed is unknown; a retry with `commit_id` is safe."""

    def __init__(self, message: str, *, commit_id: str) -> None:
        super().__init__(message)
        self.commit_id = commit_id


class StoreProblem(Enum):
    """The known problems of object stores and disks, each with advice."""

    DENIED = "AccessDenied"
    NO_BUCKET = "BucketNotFound"
    UNREACHABLE = "Unreachable"
    FULL = "DiskFull"

    @property
    def advice(self) -> str:
        """The advice to the user."""
        return _ADVICE[self]


_ADVICE = {
    StoreProblem.DENIED: "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and their rights on the bucket",
    StoreProblem.NO_BUCKET: "create the bucket, or check its name and AWS_ENDPOINT_URL",
    StoreProblem.UNREACHABLE: "check AWS_ENDPOINT_URL, and whether the network leads there",
    StoreProblem.FULL: "make room on its disk, or enlarge its volume",
}


class StorageError(PersistError):
    """The disk or the object store failed to answer. Trying again later is fine."""

    def __init__(self, message: str, problem: StoreProblem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class NotJson(StorageError):
    """A file that should be JSON is not. Trying again does not help: it is damaged, or another program wrote it."""


class CommitForgotten(PersistError):
    """The log does not have the commit any more, so whether it landed is unknown. The upper has moved on."""


class Contention(PersistError):
    """Every attempt lost its race against another writer; nothing was written."""
