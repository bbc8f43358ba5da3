"""A copy is complete or absent after a power failure: the order of writes and fsyncs shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.replica.sinks.test_must_copies import CONTENTS, copy_of, written
from tidemark_replica.sinks.copy.files import MANIFEST


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """The calls to the disk, in order: to keep the contents of a path, or to rename a folder."""
    found: list[tuple[str, Path]] = []
    fsync, rename = os.fsync, os.rename

    def keep(held: int) -> None:
        found.append(("keep", Path(os.readlink(f"/proc/self/fd/{held}"))))
        fsync(held)

    def move(folder: Path, place: Path) -> None:
        found.append(("move", Path(place)))
        rename(folder, place)

    monkeypatch.setattr(os, "fsync", keep)
    monkeypatch.setattr(os, "rename", move)
    return found


def test_must_files_are_on_disk_before_the_copy_is_at_its_place_and_that_before_the_answer(
    tmp_path: Path, asked: list[tuple[str, Path]]
) -> None:
    """Every file, the folder that names them, the new folders above its place; then the move, and then that it was."""
    copy = copy_of(tmp_path)
    place = Path(copy.sink.location)
    assert written(tmp_path, copy, CONTENTS) == 4

    moved = asked.index(("move", place))
    before, after = [path for _, path in asked[:moved]], asked[moved + 1 :]
    attempt = next(path.parent for path in before if path.name == MANIFEST)
    assert {path.name for path in place.iterdir()} == {path.name for path in before if path.parent == attempt}
    assert before.index(attempt) > max(at for at, path in enumerate(before) if path.parent == attempt)
    assert place.parent.parent in before
    assert after == [("keep", place.parent)]


def test_must_a_loser_that_finds_the_copy_makes_it_durable(tmp_path: Path, asked: list[tuple[str, Path]]) -> None:
    """The attempt that put it there may have died before it had done so."""
    copy = copy_of(tmp_path)
    written(tmp_path, copy, CONTENTS)
    asked.clear()
    assert written(tmp_path, copy, CONTENTS) == 4
    assert asked == [("keep", Path(copy.sink.location).parent)]
