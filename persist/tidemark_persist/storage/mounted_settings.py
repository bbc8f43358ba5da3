"""Settings of an object store in files, as Kubernetes mounts a Secret. Changes take effect without a restart.

    TIDEMARK_STORE_SETTINGS = /etc/tidemark/store
    /etc/tidemark/store/..data ──► ..2026_01_31_12_00_00/    one link, replaced atomically with all files
                        AWS_ACCESS_KEY_ID ──► ..data/AWS_ACCESS_KEY_ID

So credentials are in no environment and on no command line. Code that opens something calls `read_mounted()`. Code that
keeps something open compares the version (the target of one link) and opens it again where it has changed. Files whose
names do not begin with AWS_ are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_persist.errors import StorageError, StoreProblem
from tidemark_persist.storage.mounted_files import read_files, version_of

VARIABLE = "TIDEMARK_STORE_SETTINGS"
NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class MountedSettings:
    """The settings in the files; `version` changes whenever they may have changed."""

    version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


Options = Mapping[str, str] | Callable[[], MountedSettings] | None
"""The settings of a store: as they are given, or as a function reads them at each use; None: the mounted ones."""
_last = MountedSettings()


def read_mounted(environ: Mapping[str, str] = os.environ) -> MountedSettings:
    """The present settings; empty where no folder is configured. Raises StorageError where credentials are missing."""
    global _last
    named = environ.get(VARIABLE)
    if not named:
        return MountedSettings()
    if version_of(Path(named)) == _last.version:
        return _last
    files = read_files(Path(named), lambda name: name.startswith("AWS_"))
    if files is None:
        raise _missing(f"{named} has no settings")
    found = MountedSettings(files.version, {name: value.decode().strip() for name, value in files.contents.items()})
    _check(found, named)
    _last = found
    return found


def _check(found: MountedSettings, named: str) -> None:
    missing = [name for name in NEEDED if not found.settings.get(name)]
    if missing:
        raise _missing(f"{named} has no {' and no '.join(missing)}")


def _missing(what: str) -> StorageError:
    return StorageError(f"{what}: {StoreProblem.DENIED.advice}", StoreProblem.DENIED)
