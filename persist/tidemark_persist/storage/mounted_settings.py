"""Settings of an object store in files, as Kubernetes mounts a Secret: what changes there counts without a restart.

    TIDEMARK_STORE_SETTINGS = /etc/tidemark/store
    /etc/tidemark/store/..data ──► ..2026_01_31_12_00_00/    one link, moved at once: all files are new, or none
                        AWS_ACCESS_KEY_ID ──► ..data/AWS_ACCESS_KEY_ID

So credentials are in no environment and on no command line. Whoever opens something asks `read_mounted()`; whoever
holds something open asks whether its version is still that (a look at one link), and opens it anew where it is not.
Files whose names do not begin with AWS_ are somebody else's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_persist.errors import StorageError, StoreProblem

VARIABLE = "TIDEMARK_STORE_SETTINGS"
NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_READS = 5


@dataclass(frozen=True)
class MountedSettings:
    """What the files say; `version` is another whenever that may be something else."""

    version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


_last = MountedSettings()


def read_mounted(environ: Mapping[str, str] = os.environ) -> MountedSettings:
    """What holds now; nothing where no folder is named. Raises StorageError where there are no credentials."""
    global _last
    named = environ.get(VARIABLE)
    if not named:
        return MountedSettings()
    for _ in range(_READS):
        version = _version(Path(named))
        if version == _last.version:
            return _last
        try:
            found = MountedSettings(version, _read(Path(version)))
        except FileNotFoundError:  # they were replaced under our eyes: there are others by now
            continue
        _check(found, named)
        _last = found
        return found
    raise _missing(f"there are no settings in {named}")


def _version(folder: Path) -> str:
    """The folder that the files are in just now."""
    data = folder / "..data"
    return os.path.realpath(data if data.exists() else folder)


def _read(folder: Path) -> dict[str, str]:
    names = sorted(name for name in os.listdir(folder) if name.startswith("AWS_"))
    return {name: (folder / name).read_text().strip() for name in names}


def _check(found: MountedSettings, named: str) -> None:
    missing = [name for name in NEEDED if not found.settings.get(name)]
    if missing:
        raise _missing(f"{named} has no {' and no '.join(missing)}")


def _missing(what: str) -> StorageError:
    return StorageError(f"{what}: {StoreProblem.DENIED.advice}", StoreProblem.DENIED)
