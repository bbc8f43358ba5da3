"""Listings of folders in which other processes create and delete files meanwhile."""

from __future__ import annotations

import glob
from pathlib import Path


def matching(folder: Path, pattern: str) -> list[Path]:
    """Paths below the folder, hidden ones too. `Path.glob` fails where a folder goes that it was about to enter."""
    found = glob.glob(pattern, root_dir=folder, recursive=True, include_hidden=True)
    return [folder / name for name in sorted(found)]


def text_of(path: Path) -> str:
    """The text of the file; empty where it is gone."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
