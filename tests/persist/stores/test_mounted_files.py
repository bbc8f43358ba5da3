"""The files of a mounted Secret are those of one moment, also while they are replaced without a pause."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.persist.stores.test_mounted_settings import mount
from tidemark_persist import StorageError
from tidemark_persist.storage.mounted_files import BYTES_MAX, read_files

ENTRIES = tuple(f"entry-{number}" for number in range(8))


def test_a_read_never_mixes_two_moments_and_misses_no_file(tmp_path: Path) -> None:
    """The kubelet removes the old folder file by file: a reader that had resolved the link before finds a part of
    it."""
    folder, done = tmp_path / "db", threading.Event()
    mount(folder, "0", dict.fromkeys(ENTRIES, "0"))

    def replace_again_and_again() -> None:
        for number in range(1, 400):
            mount(folder, str(number), dict.fromkeys(ENTRIES, str(number)))
            shutil.rmtree(folder / f"..{number - 1}")
        done.set()

    writer = threading.Thread(target=replace_again_and_again)
    writer.start()
    seen: set[bytes] = set()
    while not done.is_set():
        found = read_files(folder)
        if found is None:  # replaced at each of its attempts: the caller reads again
            continue
        assert set(found.contents) == set(ENTRIES)
        (value,) = set(found.contents.values())
        seen.add(value)
    writer.join()
    last = read_files(folder)
    assert last is not None
    assert set(last.contents.values()) == {b"399"}
    assert len(seen) > 1


def test_a_folder_that_is_replaced_during_the_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race of the test above, each time: the old folder is half gone when it is listed."""
    mount(tmp_path, "1", {"password": "old", "user": "a"})
    listdir = os.listdir

    def list_late(folder: Path) -> list[str]:
        if (tmp_path / "..1").exists():
            mount(tmp_path, "2", {"password": "new", "user": "b"})
            (tmp_path / "..1" / "password").unlink()
            names = listdir(folder)
            shutil.rmtree(tmp_path / "..1", ignore_errors=True) if "..2" not in str(folder) else None
            (tmp_path / "..1").mkdir(exist_ok=True)
            (tmp_path / "..1" / "user").write_text("a")
            monkeypatch.setattr(os, "listdir", listdir)
            return names
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", list_late)
    found = read_files(tmp_path)

    assert found is not None
    assert found.contents == {"password": b"new", "user": b"b"}


def test_a_file_larger_than_any_secret_is_not_read(tmp_path: Path) -> None:
    """Nor is more than the limit read to find out."""
    mount(tmp_path, "1", {"a": "x" * BYTES_MAX})
    assert read_files(tmp_path) is not None
    mount(tmp_path, "2", {"a": "x" * BYTES_MAX, "b": "y"})
    with pytest.raises(StorageError, match="has more than"):
        read_files(tmp_path)


def test_a_folder_that_does_not_exist_is_none(tmp_path: Path) -> None:
    """And an empty one has no files."""
    assert read_files(tmp_path / "none") is None
    mount(tmp_path, "1", {})
    found = read_files(tmp_path)
    assert found is not None
    assert found.contents == {}
