"""A copy in an object store, which has no rename: attempts write their files to the target, and one attempt wins.

    written on disk ──► <to>/part-00000-<attempt>.parquet ...     names that no other attempt uses
                    ──► put_if_absent at <to>/_winner             the record of the first attempt stays
                    ──► <to>/_manifest.json                       from that record: copy, rows, files; the copy exists
                    ──► files of other attempts are removed

    the process dies before the put   no copy exists. The next copy to that target removes its files, or any copy of
                                      the namespace a day later (.staging/<attempt>.json has the target)
    ... after it                      the next attempt, or any copy to that target, writes the manifest from the record
    two replicas at once              one record stays; the other attempt removes its own files and answers alike
    the reply of the put is lost      the record says who won; until it can be read, the files stay

Readers use the manifest, or all `part-*` files once it exists.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tidemark_persist import IndeterminateCommit, PersistError, Storage, put_if_absent, read_record
from tidemark_protocol.copy_location import STAGING, folder_of
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.copy.files import MANIFEST, Copy, CopyFailed, check, write_files

WINNER = "_winner"
ATTEMPT_AGE_MAX_MS = 24 * 3600 * 1000
"""Milliseconds after which no request of an attempt can still arrive: the store refuses its expired signature."""
WRITE_SECONDS_MAX = ATTEMPT_AGE_MAX_MS / 1000 / 2
_PART = re.compile(r"part-\d{5,}-([0-9a-f]{32})\.(parquet|csv)")
_PIECE = 8 * 1024 * 1024


def is_object_store(storage: str) -> bool:
    return "://" in storage


@dataclass(frozen=True)
class CopyTarget:
    """The target of a copy, and the folder with the notes of running attempts."""

    copy: Copy
    storage: Storage
    staging: Storage

    @classmethod
    def of(cls, copy: Copy) -> CopyTarget:
        """Raises CopyFailed where no copy may be written."""
        try:
            folder = folder_of(copy.storage, copy.sink.location)
        except ValueError as error:
            raise CopyFailed(str(error)) from None
        inside = PurePosixPath(copy.sink.location.removeprefix(f"{folder}/")).parents
        for around in [f"{folder}/{path}" for path in inside if str(path) != "."]:
            if _winner(around) is not None:
                raise CopyFailed(
                    f"{copy.sink.location} is inside {around}, which is another copy; choose another location"
                )
        return cls(copy, Storage.at(copy.sink.location), Storage.at(f"{folder}/{STAGING}"))

    def rows_there(self) -> int | None:
        """The number of rows of this copy, if an attempt has won; else None. Raises CopyFailed where the target is
        something else."""
        others = any(not _PART.fullmatch(file.path) for file in self.storage.list("")) or bool(self.storage.folders())
        record = _winner(self.copy.sink.location)  # read after the listing, which may have the winner's files
        if record is not None:
            return self.finish(record)
        if others:
            raise self._occupied()
        return None

    def finish(self, record: dict[str, Any]) -> int:
        """Writes the manifest and removes other attempts' files. A winner may have died before; repeating it is
        harmless."""
        self.storage.write(MANIFEST, (json.dumps(record, indent=1) + "\n").encode())
        for file in self.storage.list(""):
            if _PART.fullmatch(file.path) and file.path not in record["files"]:
                self.storage.remove(file.path)
        if record["copy"] != self.copy.id:
            raise self._occupied()
        return int(record["rows"])

    def _occupied(self) -> CopyFailed:
        return CopyFailed(f"{self.copy.sink.location} exists; choose a location where nothing is")


def write_objects(
    copy: Copy, delta: SinkDelta | None, session: Callable[[], Any], stopped: Callable[[], bool], scratch: Path
) -> int:
    """Writes the copy unless it exists; returns its number of rows. Raises CopyFailed, PersistError, OSError, and what
    Spark raises."""
    target = CopyTarget.of(copy)
    if (rows := target.rows_there()) is not None:
        return rows
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="copy-", dir=scratch))
    try:
        manifest = write_files(copy, folder, delta, session, stopped)
        return _put(target, folder, manifest, stopped)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(target: CopyTarget, folder: Path, manifest: dict[str, Any], stopped: Callable[[], bool]) -> int:
    attempt, began = uuid.uuid4().hex, time.monotonic()
    names = {name: f"{Path(name).stem}-{attempt}{Path(name).suffix}" for name in manifest["files"]}
    _sweep(target.staging, target.copy.storage)
    target.staging.write_json(f"{attempt}.json", {"place": target.copy.sink.location})
    mine = {**manifest, "files": list(names.values()), "attempt": attempt}
    try:
        for name, object_name in names.items():
            check(stopped)
            _upload(folder / name, target.storage, object_name)
        check(stopped)
        if time.monotonic() - began > WRITE_SECONDS_MAX:
            raise CopyFailed(
                f"{target.copy.sink.location}: writing took more than {WRITE_SECONDS_MAX:.0f} s; copy less"
            )
        record = put_if_absent(f"{target.copy.sink.location}/{WINNER}", mine)
    except IndeterminateCommit:
        raise  # this attempt may have won: its files stay, and the note has their target
    except BaseException:
        _discard(target, names.values(), attempt)
        raise
    if record["attempt"] != attempt:
        _discard(target, names.values(), attempt)
    rows = target.finish(record)
    target.staging.remove(f"{attempt}.json")
    return rows


def _upload(path: Path, there: Storage, name: str) -> None:
    with there.errors(f"writing {name}", writing=True), path.open("rb") as source, there.open_output(name) as sink:
        while data := source.read(_PIECE):
            sink.write(data)


def _discard(target: CopyTarget, names: Any, attempt: str) -> None:
    """Removes the attempt's files as far as the store allows; the note has the rest."""
    with suppress(PersistError):
        for name in names:
            target.storage.remove(name)
        target.staging.remove(f"{attempt}.json")


def _sweep(staging: Storage, storage: str) -> None:
    """Removes files of attempts that died long ago and did not win. It may be interrupted and repeated."""
    now = time.time() * 1000
    for note in staging.list(""):
        if now - note.modified_ms < ATTEMPT_AGE_MAX_MS or not note.path.endswith(".json"):
            continue
        attempt, location = note.path.removesuffix(".json"), (staging.read_json(note.path) or {}).get("place")
        if isinstance(location, str) and _is_copy_location(storage, location):
            there, record = Storage.at(location), _winner(location)
            for file in there.list("") if record is None or record["attempt"] != attempt else []:
                if (part := _PART.fullmatch(file.path)) and part[1] == attempt:
                    there.remove(file.path)
        staging.remove(note.path)


def _is_copy_location(storage: str, location: str) -> bool:
    """Whether copies may be at the location: anybody with write access may have written the note."""
    try:
        return bool(folder_of(storage, location))
    except ValueError:
        return False


def _winner(location: str) -> dict[str, Any] | None:
    return read_record(Storage.at(f"{location}/{WINNER}"))
