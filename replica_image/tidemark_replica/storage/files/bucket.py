"""A prefix in a bucket as a store of files.

An object is there whole or not at all. It is read by ranges, each of the bound version (its ETag) or not at all.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

from tidemark_persist import ObjectChanged, ObjectReader, ObjectVersion, Storage
from tidemark_persist.storage.mounted_settings import Options
from tidemark_replica.storage.files.listing import FileChanged, FileVersion, FolderListing, is_candidate

RANGE_BYTES = 4 << 20
"""Bytes of a request where an object is read from one end to the other. A request ends within PATIENCE."""
INFERENCE_PAGES = 10


@dataclass(frozen=True)
class Bucket:
    """The objects directly below the location. A copy in another process has the options of the moment that it was
    made."""

    location: str
    options: Options = field(default=None, repr=False)

    def list(self, pattern: str) -> FolderListing:
        """The files of the first INFERENCE_PAGES pages: `bucket_arrivals.py` lists everything, bit by bit."""
        found = FolderListing()
        for number, (page, _) in enumerate(self.reader.pages(), 1):
            found.files.extend(version(each) for each in with_bytes(page) if is_candidate(each.name, pattern))
            if number == INFERENCE_PAGES:
                break
        return found

    def version_of(self, name: str) -> FileVersion | None:
        """The present version of the object; None where it is gone. Raises StorageError."""
        found = self.reader.version_of(name)
        return version(found) if found is not None else None

    def is_complete(self, name: str, format: str, compression: str) -> bool:
        """Whether the object looks finished: a store has whole objects only."""
        return True

    def open(self, file: FileVersion, *, sequential: bool = True) -> BinaryIO:
        """The bytes of the object, to be read from one end to the other, or in parts. Raises FileNotFoundError,
        FileChanged where it is in another version, StorageError, also while it is read."""
        raw = _Ranges(self.reader, file)
        return io.BufferedReader(raw, RANGE_BYTES) if sequential else raw  # type: ignore[return-value]

    @cached_property
    def reader(self) -> ObjectReader:
        return ObjectReader(Storage.at(self.location, self.options))

    def __getstate__(self) -> dict[str, Any]:
        """The state for a task, without the reader. Secrets are mounted in drivers alone, so it has their present
        values."""
        given = self.options
        return {"location": self.location, "options": dict(given().settings) if callable(given) else given}


def with_bytes(page: list[ObjectVersion]) -> list[ObjectVersion]:
    """The page without objects of 0 bytes: consoles and Hadoop write them as markers of folders, under names that are
    also listed without their `/`."""
    return [each for each in page if each.size]


def version(found: ObjectVersion) -> FileVersion:
    return FileVersion(found.name, found.size, found.modified_ns, found.etag)


class _Ranges(io.RawIOBase):
    """The bytes of one version of an object; each read is a request."""

    def __init__(self, reader: ObjectReader, file: FileVersion) -> None:
        self._reader, self._at = reader, 0
        self._object = ObjectVersion(file.name, file.size, file.modified_ns, file.etag)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._object.size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._object.size)
        if end <= self._at:
            return 0
        try:
            data = self._reader.read(self._object, self._at, end)
        except ObjectChanged:
            raise FileChanged(self._object.name) from None
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
