"""Which files are there, new, settled and complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files.listing import FileVersion, KnownFiles, is_complete, list_files


def test_hidden_and_unfinished_files_are_left_out(tmp_path: Path) -> None:
    """What other programs leave while they write."""
    for name in ("a.csv", "_b.csv", ".c.csv", "d.csv.tmp", "e.csv._COPYING_", "f.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "g.csv").mkdir()

    assert [f.name for f in list_files(str(tmp_path), "*.csv")] == ["a.csv"]


def test_a_missing_directory_is_said_so(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(SourceUnusable, match="nowhere"):
        list(list_files(str(tmp_path / "nowhere"), "*"))


COMPLETE = {
    "text with its last newline": ("csv", b"a,b\n1,2\n", True),
    "text cut in a row": ("csv", b"a,b\n1,2", False),
    "empty text": ("json", b"", True),
    "empty parquet": ("parquet", b"", False),
    "parquet without its footer": ("parquet", b"PAR1....", False),
    "parquet with its footer": ("parquet", b"PAR1....PAR1", True),
}


@pytest.mark.parametrize(("format_", "content", "expected"), COMPLETE.values(), ids=COMPLETE.keys())
def test_a_file_is_complete_when_it_ends_as_its_format_ends(
    tmp_path: Path, format_: str, content: bytes, expected: bool
) -> None:
    """Half-written files are waited for."""
    (tmp_path / "f").write_bytes(content)

    assert is_complete(str(tmp_path / "f"), format_) is expected


def test_known_files_tell_new_from_changed() -> None:
    """A bound file in another version is counted, never given again."""
    known = KnownFiles()
    known.add([FileVersion("a", 1, 1), FileVersion("b", 1, 1)])
    new, changed = known.split([FileVersion("a", 1, 1), FileVersion("b", 2, 5), FileVersion("c", 1, 1)])

    assert ([f.name for f in new], changed) == (["c"], 1)


def test_a_million_known_files_stay_small_and_quick() -> None:
    """16 bytes each; listing a million again finds exactly the one that is new."""
    known = KnownFiles()
    files = [FileVersion(f"part-{i:07}.csv", i, i) for i in range(1_000_000)]
    known.add(files)
    new, changed = known.split([*files, FileVersion("late.csv", 1, 1)])

    assert ([f.name for f in new], changed) == (["late.csv"], 0)
    assert known._names.nbytes + known._versions.nbytes == 16 * len(known)


def test_names_that_are_not_utf8_are_listed(tmp_path: Path) -> None:
    """Linux allows any bytes."""
    path = os.fsencode(str(tmp_path)) + b"/\xff.csv"
    with open(path, "wb") as file:
        file.write(b"1\n")
    known = KnownFiles()
    listed = list(list_files(str(tmp_path), "*.csv"))
    known.add(listed)

    assert known.split(listed) == ([], 0)
