"""Lists a directory, and decides which files are new, settled and complete.

    listed ──► hidden or temporary?         skipped
           ──► a link out of the directory? skipped and reported: a writer of files must not choose what else is read
           ──► known, same size and age?    read already
           ──► known, but changed?          not read again; counted and reported (`changed`)
           ──► changed since the last tick? waits: somebody is still writing it
           ──► incomplete?                  waits: a text file must end with a newline, a Parquet file with its footer
           ──► new

A file costs 16 bytes of memory: names and versions are kept as sorted 64-bit hashes.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidemark_protocol.forbidden_source_folders import forbidden_folder
from tidemark_replica.storage.errors import SourceUnusable

Hashes = npt.NDArray[np.uint64]
# names of unfinished files, and of files that Spark and Hadoop write beside their output
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".inprogress", "._COPYING_")
_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class FileVersion:
    """A file as it was listed."""

    name: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class Listing:
    files: list[FileVersion] = field(default_factory=list)
    outside_links: list[str] = field(default_factory=list)
    """Names of symbolic links that point outside the directory."""
    undecodable_names: list[str] = field(default_factory=list)
    """Names that are not UTF-8, with each byte that is none as `\\xff`."""


def list_files(directory: str, pattern: str) -> Listing:
    """The files of the directory that match the pattern, without hidden and unfinished ones. Raises SourceUnusable."""
    root, listing = _root_of(directory), Listing()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not _is_candidate(entry.name, pattern):
                    continue
                if (name := shown_name(entry.name)) != entry.name:
                    listing.undecodable_names.append(name)
                    continue
                if entry.is_symlink() and _points_outside(root, entry.path):
                    listing.outside_links.append(entry.name)
                    continue
                try:
                    if not entry.is_file():
                        continue
                    stat = entry.stat()
                except FileNotFoundError:
                    continue  # removed during the listing
                listing.files.append(FileVersion(entry.name, stat.st_size, stat.st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise SourceUnusable(f"cannot list {directory}: {error.strerror}") from None
    return listing


def shown_name(name: str) -> str:
    """The name as text that every encoder takes: bytes that are not UTF-8 become `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def version_of(directory: str, name: str) -> FileVersion | None:
    """The present version of the file; None where it is gone, or replaced by a link out of the directory."""
    path = os.path.join(directory, name)
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    if os.path.islink(path) and _points_outside(_root_of(directory), path):
        return None
    return FileVersion(name, stat.st_size, stat.st_mtime_ns)


def _root_of(directory: str) -> str:
    """The real path of the directory. The directory may be a link, but not to the pod's own files. Raises
    SourceUnusable."""
    root = os.path.realpath(directory)
    if folder := forbidden_folder(root):
        raise SourceUnusable(f"cannot list {directory}: it leads into {folder}, whose files are the pod's own")
    return root


def _points_outside(root: str, link: str) -> bool:
    return not os.path.realpath(link).startswith(f"{root}/")


def is_complete(path: str, format: str) -> bool:
    """Whether the file looks finished. An empty text file does."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                return format != "parquet"
            if format != "parquet":
                file.seek(-1, os.SEEK_END)
                return file.read(1) == b"\n"
            file.seek(-min(size, 4), os.SEEK_END)
            return file.read(4) == _PARQUET_MAGIC
    except OSError:
        return False


def _is_candidate(name: str, pattern: str) -> bool:
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
    return f"{file.size}:{file.modified_ns}"


def _hashes(texts: Iterable[str]) -> Hashes:
    digests = b"".join(hashlib.blake2b(t.encode("utf-8", "surrogateescape"), digest_size=8).digest() for t in texts)
    return np.frombuffer(digests, np.uint64)
