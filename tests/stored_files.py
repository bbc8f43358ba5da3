"""Files that tests look for on disk, or take away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemark_replica.arrangement.spines.manifest import Manifest


def stored_files(root: Path) -> set[str]:
    """The files in the folders of `root`, as FOLDER/NAME. A folder may go while it is read: the store deletes files in
    the background."""
    found = set[str]()
    for folder in root.glob("*"):
        with suppress(FileNotFoundError, NotADirectoryError):
            found |= {f"{folder.name}/{file.name}" for file in folder.iterdir()}
    return found


def live_files(manifests: Iterable[Manifest]) -> frozenset[str]:
    """The files that these manifests need."""
    return frozenset().union(*(m.files for m in manifests))


@contextmanager
def rows_away(table: Path, aside: Path) -> Iterator[None]:
    """The files of a Delta table with its rows are in another folder."""
    aside.mkdir()
    taken = [(file, aside / file.name) for file in table.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert taken
    for here, there in taken:
        here.rename(there)
    try:
        yield
    finally:
        for here, there in taken:
            there.rename(here)
