"""The files of a location: one interface over a local folder and an object store.

Local folders use Arrow's file system, object stores delta-rs's, so that one set of settings and credentials serves log
and data (object_store.py, objects.py).
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark_persist.errors import NotJson, ShardDeleted, StorageError, StoreProblem
from tidemark_persist.storage import object_store
from tidemark_persist.storage.delta_rs_panic import is_panic
from tidemark_persist.storage.mounted_settings import MountedSettings, Options, read_mounted
from tidemark_persist.storage.objects import ABSENT_OBJECT, ObjectFileSystem, open_known

LOG_DIR = "_delta_log"
OWN_DIR = "_tidemark"  # a leading underscore hides it from Delta readers
TOMBSTONE = f"{OWN_DIR}/deleted.json"
VACUUM_MARK = f"{OWN_DIR}/vacuum.json"
LAST_CHECKPOINT = f"{LOG_DIR}/_last_checkpoint"
FIRST_ENTRY = f"{LOG_DIR}/{0:020}.json"
_SMALL = (TOMBSTONE, VACUUM_MARK, LAST_CHECKPOINT, FIRST_ENTRY)
_READS = 5
_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
"""The words that errors of Arrow, delta-rs and Python share where a disk is full."""


@dataclass(frozen=True)
class FileStat:
    """A file in a listing; `path` is relative to the location."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Storage:
    """A location (a local path or a URL) and the options it is opened with."""

    location: str
    options: Options = field(default=None, repr=False)  # there may be credentials among them

    @classmethod
    def at(cls, location: str, options: Options = None) -> Storage:
        """The storage at a location as users write it. Local paths become absolute, so that other processes can use
        them."""
        object_store.check_location(location)
        storage = cls(location.rstrip("/") or "/", options)
        local = storage.local_path
        return storage if local is None else cls(str(local.absolute()), options)

    @cached_property
    def local_path(self) -> Path | None:
        """The folder, if the location is on this machine's disk."""
        if not self.location.startswith("file:"):
            return Path(self.location) if "://" not in self.location else None
        return Path(unquote(urlparse(self.location).path))

    @property
    def settings(self) -> dict[str, str]:
        """The settings for delta-rs. Raises StorageError where mounted credentials are missing."""
        if self.local_path is not None:
            return dict(self.options) if isinstance(self.options, Mapping) else {}
        return object_store.settings(self._effective_options.settings)

    @property
    def version(self) -> str:
        """Changes where what was opened must be opened again with other settings."""
        return "" if self.local_path is not None else self._effective_options.version

    @property
    def fs(self) -> Any:
        """An Arrow file system whose root is the location."""
        version = self.version
        if (known := self._opened.get(version)) is not None:
            return known
        if self.local_path is not None:
            opened = pa_fs.SubTreeFileSystem(str(self.local_path), pa_fs.LocalFileSystem())
        else:
            opened = pa_fs.PyFileSystem(ObjectFileSystem(self.location, self.settings, self._store(version), _SMALL))
        self._opened.clear()
        self._opened[version] = opened
        return opened

    @cached_property
    def _opened(self) -> dict[str, Any]:
        """The file system, by the version of its settings."""
        return {}

    def _store(self, version: str) -> tuple[str, str, int]:
        """Equal for all locations of a bucket with the same settings."""
        given = self.options if isinstance(self.options, Mapping) else {}
        return urlparse(self.location).netloc, version, hash(frozenset(given.items()))

    @contextmanager
    def errors(self, doing: str, *, writing: bool = False) -> Iterator[None]:
        """Raises failures of the store as StorageError. A missing file is no failure of the store, except while an
        object is written: then the bucket is missing."""
        try:
            yield
        except (FileNotFoundError, TableNotFoundError) as error:
            if self.local_path is not None or not writing:
                raise
            raise self.failed(doing, error) from None
        except (OSError, DeltaError) as error:
            # the traceback of an object store's error would show what `redacted` leaves out
            raise self.failed(doing, error) from (error if self.local_path is not None else None)
        except BaseException as error:
            if not is_panic(error):
                raise
            guess = (
                ""
                if self.local_path is not None
                else " (do the settings have characters that no URL or header may have?)"
            )
            raise self.failed(f"{doing}{guess}", error) from None

    def failed(self, doing: str, error: BaseException, more: str = "") -> StorageError:
        """The failure of a store as an error without secrets. `more`: advice beside that of the problem."""
        text = self.redacted(error)
        problem = self._problem(text)
        advice = f"; {problem.advice}" if problem else ""
        return StorageError(f"{self.location}: {doing} failed: {text}{advice}{more}", problem)

    def advised(self, error: BaseException) -> str:
        """The error's text without secrets, with advice where its problem is known."""
        text = self.redacted(error)
        problem = self._problem(text)
        return f"{text}; {problem.advice}" if problem else text

    def _problem(self, text: str) -> StoreProblem | None:
        if self.local_path is None:
            return object_store.problem(text)
        return StoreProblem.FULL if any(full in text for full in _FULL) else None

    def redacted(self, error: BaseException) -> str:
        """The error's text without secrets."""
        try:
            given = self._effective_options.settings
        except Exception:  # the Secret cannot be read now; its function raises errors of its own
            given = {}
        return object_store.redacted(error, given)

    @property
    def _effective_options(self) -> MountedSettings:
        """The options, or else the mounted settings."""
        if self.options is None:
            return read_mounted()
        return MountedSettings(settings=self.options) if isinstance(self.options, Mapping) else self.options()

    def probe(self) -> None:
        """Probe the store before a request of delta-rs under Python's lock. Raises StorageError where the store does
        not answer."""
        if self.local_path is None:
            with self.errors("asking the store"):
                self.fs.handler.probe()

    def read(self, path: str, table: DeltaTable | None = None) -> bytes | None:
        """The file's bytes; None if there is no file. `table`: the open table at the location, whose connection needs
        one request less."""
        try:
            with self.errors(f"reading {path}"):
                if self.local_path is not None:
                    return (self.local_path / path).read_bytes()
                return bytes(self.fs.handler.read_object(path, table))
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Replaces the file as a whole: readers see the old bytes or the new ones. On a disk, raises ShardDeleted where
        the location does not exist: nothing is left where a shard was."""
        with self.errors(f"writing {path}", writing=True):
            self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        if self.local_path is None:
            with self.fs.open_output_stream(path) as stream:
                stream.write(data)
            return
        target = self.local_path / path
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            for folder in reversed(Path(path).parents[:-1]):
                (self.local_path / folder).mkdir(exist_ok=True)
            draft.write_bytes(data)
            draft.replace(target)
        except FileNotFoundError as error:
            raise self._shard_deleted(path) from error
        except OSError:
            draft.unlink(missing_ok=True)  # a disk that is full would fill further with each attempt
            raise

    def read_json(self, path: str) -> Any:
        """The parsed file; None if there is no file. Raises NotJson, other StorageErrors.

        An object that is replaced by a longer one during the read may be returned in part. That is not JSON, and is
        read again.
        """
        for _ in range(_READS):
            data = self.read(path)
            if data is None:
                return None
            with suppress(ValueError):
                return json.loads(data)
        raise NotJson(f"{path} of shard {self.location} is not JSON: another program wrote it, or it is damaged")

    def write_json(self, path: str, value: Any) -> None:
        """Replace the file by this value."""
        self.write(path, json.dumps(value).encode())

    def stat(self, path: str) -> FileStat | None:
        """Size and age of a file; None if there is none."""
        with self.errors(f"reading the status of {path}"):
            info = self.fs.get_file_info(path)
        return _stat(path, info) if info.type == pa_fs.FileType.File else None

    def list(self, folder: str) -> list[FileStat]:
        """The files directly inside a folder; none if it does not exist."""
        with self.errors(f"listing {folder or 'it'}"):
            found = self.fs.get_file_info(pa_fs.FileSelector(folder, allow_not_found=True))
        prefix = f"{folder}/" if folder else ""
        return [_stat(prefix + info.base_name, info) for info in found if info.type == pa_fs.FileType.File]

    def folders(self, folder: str = "") -> tuple[str, ...]:
        """The names of the folders directly inside a folder; none if it does not exist."""
        with self.errors(f"listing {folder or 'it'}"):
            found = self.fs.get_file_info(pa_fs.FileSelector(folder, allow_not_found=True))
        return tuple(info.base_name for info in found if info.type == pa_fs.FileType.Directory)

    def remove(self, path: str) -> None:
        """Deletes a file; does nothing if there is none."""
        with suppress(FileNotFoundError), self.errors(f"deleting {path}"):
            self.fs.delete_file(path)

    def remove_empty_folders(self) -> None:
        """Removes empty folders of a local disk (object stores have none). Others stay: somebody has begun a new shard
        there."""
        if self.local_path is None:
            return
        below = (p for p in self.local_path.rglob("*") if p.is_dir() and not p.is_symlink())
        for folder in [*sorted(below, reverse=True), self.local_path]:
            with suppress(FileNotFoundError):
                _remove_if_empty(folder)

    def open_input(self, path: str, size: int | None = None) -> Any:
        """A seekable file. An object store needs one request less where the size is known."""
        if self.local_path is not None:
            return pa.OSFile(f"{self.local_path}/{path}", "rb")
        return self.fs.open_input_file(path) if size is None else open_known(self.location, self.settings, path, size)

    def open_output(self, path: str) -> Any:
        """A stream to write a data file to. On a disk, raises ShardDeleted where the location does not exist."""
        try:
            return self.fs.open_output_stream(path)
        except FileNotFoundError as error:
            if self.local_path is None:
                raise
            raise self._shard_deleted(path) from error

    def _shard_deleted(self, path: str) -> ShardDeleted:
        """The error of a write at the path, whose folder is gone."""
        return ShardDeleted(f"{path} cannot be written: the folder {self.location} is gone, its shard was deleted")


def check_store(location: str) -> None:
    """Asks the store for an object that never exists. Raises StorageError, InvalidLocation."""
    Storage.at(location).stat(ABSENT_OBJECT)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _stat(path: str, info: pa.fs.FileInfo) -> FileStat:
    modified = info.mtime_ns or 0
    return FileStat(path, info.size or 0, modified // 1_000_000)
