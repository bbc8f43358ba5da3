"""The files of a listing, and which of them are new.

    listed ──► hidden or temporary?         skipped
           ──► a link out of the directory? skipped and reported: a writer of files must not choose what else is read
           ──► known, same size and age?    read already
           ──► known, but changed?          not read again; counted and reported (`changed`)
           ──► changed since the last tick? waits: somebody is still writing it
           ──► incomplete?                  waits: text ends with a newline, Parquet with a footer, Avro with a marker
                                            (objects of a bucket are there whole, so neither check is of them)
           ──► new

A file costs 16 bytes of memory: names and versions are kept as sorted 64-bit hashes.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
# names of unfinished files, and of files that Spark and Hadoop write beside their output
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".inprogress", "._COPYING_")

TICK_BYTES = 1 << 30
"""The new files of a table at a tick have so many bytes, or one file: no other table of the source moves until they are
read, and a process that dies begins them anew."""


@dataclass(frozen=True, eq=False)
class FileVersion:
    """A file as it was listed. `etag`: of an object, which with the name and the size tells its versions apart; without
    one the time does."""

    name: str
    size: int
    modified_ns: int
    etag: str = ""

    @property
    def identity(self) -> tuple[str, int, int | str]:
        """Equal for equal versions."""
        return self.name, self.size, self.etag or self.modified_ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileVersion) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


class FileChanged(Exception):
    """The file is in another version than was bound."""


@dataclass(frozen=True)
class FolderListing:
    files: list[FileVersion] = field(default_factory=list)
    refused: list[WaitingFile] = field(default_factory=list)
    """Files that are never read as they are."""


@dataclass(frozen=True)
class WaitingFile:
    """A file that is not bound yet. `reason`: for people; empty where it is only not its turn."""

    name: str
    size: int
    reason: str = ""


@dataclass
class Arrived:
    """The files to bind now, those that wait, and how many bound ones are in another version now. `unbound`: how many
    new files are known that are not to be bound now."""

    files: list[FileVersion] = field(default_factory=list)
    waiting: list[WaitingFile] = field(default_factory=list)
    changed: int = 0
    unbound: int = 0
    _size: int = field(default=0, init=False)

    def add(self, file: FileVersion, at_most: int) -> bool:
        """Whether the file is bound now: they are at most so many, of TICK_BYTES; one in any case."""
        if self.files and (len(self.files) >= at_most or self._size + file.size > TICK_BYTES):
            return False
        self.files.append(file)
        self._size += file.size
        return True


def is_candidate(name: str, pattern: str) -> bool:
    """Whether a file of this name is one of the table."""
    return not name.startswith(_HIDDEN) and not name.endswith(_UNFINISHED) and fnmatch.fnmatchcase(name, pattern)


class BoundFiles:
    """The bound files of one table: the hashes of their names and of their versions."""

    def __init__(self) -> None:
        self._names: Hashes = np.empty(0, np.uint64)
        self._versions: Hashes = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, files: Iterable[FileVersion]) -> None:
        added = list(files)
        if not added:
            return
        names = np.concatenate([self._names, _hashes(f.name for f in added)])
        versions = np.concatenate([self._versions, _hashes(_version(f) for f in added)])
        order = np.argsort(names, kind="stable")
        self._names, self._versions = names[order], versions[order]

    def remove(self, names: Iterable[str]) -> None:
        """These files are not bound any more."""
        kept = ~np.isin(self._names, _hashes(names))
        self._names, self._versions = self._names[kept], self._versions[kept]

    def split(self, listed: list[FileVersion]) -> tuple[list[FileVersion], int]:
        """The files that were never bound, and the number of files that were bound in another version."""
        if not listed or not len(self._names):
            return listed, 0
        names, versions = _hashes(f.name for f in listed), _hashes(_version(f) for f in listed)
        at = np.minimum(np.searchsorted(self._names, names), len(self._names) - 1)
        known = self._names[at] == names
        changed = int((known & (self._versions[at] != versions)).sum())
        return [listed[i] for i in np.flatnonzero(~known)], changed


def _version(file: FileVersion) -> str:
    return ":".join(map(str, file.identity[1:]))


def _hashes(texts: Iterable[str]) -> Hashes:
    digests = b"".join(hashlib.blake2b(t.encode("utf-8", "surrogateescape"), digest_size=8).digest() for t in texts)
    return np.frombuffer(digests, np.uint64)
