"""The files of a mounted Secret, all of one moment.

    FOLDER/..data ──► ..2026_01_31_12_00_00/    one link, replaced atomically with all files
           password ──► ..data/password

The kubelet (and the operator's `certificates/files.py`) turns the link, then removes the old folder. A reader that
resolved the link before may find the old folder in part, so the link is resolved again after the files were read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_persist.errors import StorageError

BYTES_MAX = 2 << 20
"""Kubernetes limits a Secret to 1 MiB."""
_READS = 5


@dataclass(frozen=True)
class MountedFiles:
    """The contents by the file's name; `version` changes whenever they may have changed."""

    version: str
    contents: Mapping[str, bytes] = field(repr=False)


def version_of(folder: Path) -> str:
    """The path of the folder that has the files now; each replacement of the files makes another one."""
    data = folder / "..data"
    return os.path.realpath(data if data.exists() else folder)


def read_files(folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> MountedFiles | None:
    """The files whose names are wanted; None where the folder does not exist, or its files were replaced during each of
    five reads. Raises StorageError where they have more than BYTES_MAX, and OSError where they cannot be read."""
    for _ in range(_READS):
        version = version_of(folder)
        try:
            found = MountedFiles(version, _contents(Path(version), wanted))
        except FileNotFoundError:  # the files were replaced meanwhile; read the new ones
            continue
        if version_of(folder) == version:
            return found
    return None


def _contents(folder: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    room, contents = BYTES_MAX, {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("..") or not wanted(name) or not (folder / name).is_file():
            continue
        with open(folder / name, "rb") as file:
            contents[name] = file.read(room + 1)
        room -= len(contents[name])
        if room < 0:
            raise StorageError(f"{folder} has more than {BYTES_MAX} bytes: a Secret has at most 1 MiB")
    return contents
