"""A folder of this machine as a store of files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import BinaryIO

from tidemark_protocol.forbidden_source_folders import forbidden_folder
from tidemark_replica.storage.avro.container import looks_complete
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files.listing import FileVersion, FolderListing, WaitingFile, is_candidate
from tidemark_replica.storage.files.streamed.compression import NONE

_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Folder:
    """The files directly in the directory. Links lead to files of the directory alone."""

    directory: str

    def list(self, pattern: str) -> FolderListing:
        """The files whose names match the pattern, without hidden and unfinished ones. Raises SourceUnusable."""
        root, listing = _root_of(self.directory), FolderListing()
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if is_candidate(entry.name, pattern):
                        _add(listing, root, entry)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise SourceUnusable(f"cannot list {self.directory}: {error.strerror}") from None
        return listing

    def version_of(self, name: str) -> FileVersion | None:
        """The file's version. None: it is gone, or a link out of the directory took its place."""
        path = self.path_of(name)
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return None
        if os.path.islink(path) and _points_outside(_root_of(self.directory), path):
            return None
        return FileVersion(name, stat.st_size, stat.st_mtime_ns)

    def is_complete(self, name: str, format: str, compression: str) -> bool:
        """Whether the file looks finished. An empty text file does, and a compressed one unless it is empty: the end of
        an archive shows nothing."""
        try:
            with open(self.path_of(name), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size == 0 or compression != NONE:
                    return size > 0 or (format in ("csv", "json") and compression == NONE)
                if format == "avro":
                    return looks_complete(file)
                if format != "parquet":
                    file.seek(-1, os.SEEK_END)
                    return file.read(1) == b"\n"
                file.seek(-min(size, 4), os.SEEK_END)
                return file.read(4) == _PARQUET_MAGIC
        except OSError:
            return False

    def open(self, file: FileVersion, *, sequential: bool = True) -> BinaryIO:
        """The bytes of the file in whatever version. Raises OSError."""
        return open(self.path_of(file.name), "rb")

    def path_of(self, name: str) -> str:
        return os.path.join(self.directory, name)


def _add(listing: FolderListing, root: str, entry: os.DirEntry[str]) -> None:
    if (name := shown_name(entry.name)) != entry.name:
        listing.refused.append(WaitingFile(name, 0, "not read, its name is not UTF-8: rename it"))
        return
    if entry.is_symlink() and _points_outside(root, entry.path):
        listing.refused.append(WaitingFile(name, 0, "not read, it is a link out of its directory"))
        return
    try:
        if not entry.is_file():
            return
        stat = entry.stat()
    except FileNotFoundError:
        return  # the file was removed during the listing
    listing.files.append(FileVersion(entry.name, stat.st_size, stat.st_mtime_ns))


def shown_name(name: str) -> str:
    """The name as text that every encoder takes: bytes that are not UTF-8 become `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _root_of(directory: str) -> str:
    """The real path of the directory. The directory may be a link, but not to the pod's own files. Raises
    SourceUnusable."""
    root = os.path.realpath(directory)
    if folder := forbidden_folder(root):
        raise SourceUnusable(f"cannot list {directory}: it leads into {folder}, whose files are the pod's own")
    return root


def _points_outside(root: str, link: str) -> bool:
    return not os.path.realpath(link).startswith(f"{root}/")
