"""The files of an arrangement store, as a test finds them on disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def stored_files(root: Path) -> set[str]:
    """The files in the folders of `root`, as FOLDER/NAME. A folder may go while it is read: the store deletes files in
    the background."""
    found = set[str]()
    for folder in root.glob("*"):
        with suppress(FileNotFoundError, NotADirectoryError):
            found |= {f"{folder.name}/{file.name}" for file in folder.iterdir()}
    return found
