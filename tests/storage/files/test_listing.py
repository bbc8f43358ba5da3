"""Listings of source files: new, settled and complete ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files import listing
from tidemark_replica.storage.files.arrivals import FolderArrivals
from tidemark_replica.storage.files.folder import Folder
from tidemark_replica.storage.files.listing import BoundFiles, FileVersion, FolderListing
from tidemark_replica.storage.files.source import FilesIngestion


def test_hidden_and_unfinished_files_are_left_out(tmp_path: Path) -> None:
    """The files are what other programs leave while they write."""
    for name in ("a.csv", "_b.csv", ".c.csv", "d.csv.tmp", "e.csv._COPYING_", "f.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "g.csv").mkdir()

    assert names(Folder(str(tmp_path)).list("*.csv")) == ["a.csv"]


def test_files_of_a_tick_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oldest first: a small file waits behind a large one that has no room; one that is larger than the bound is taken
    alone, and a half written one holds nothing up."""
    monkeypatch.setattr(listing, "TICK_BYTES", 10)
    for at, (name, size) in enumerate([("a", 4), ("b", 6), ("half", 9), ("c", 50), ("d", 2), ("e", 9), ("f", 1)]):
        (tmp_path / name).write_text("x" * (size - 1) + ("x" if name == "half" else "\n"))
        os.utime(tmp_path / name, ns=(at * 10**9, at * 10**9))
    arrivals, known = FolderArrivals(FilesTable("t", "csv", str(tmp_path)), Folder(str(tmp_path))), BoundFiles()
    looks, unbound = [], []
    for _ in range(6):
        arrived = arrivals.look(known, {})
        known.add(arrived.files)
        arrivals.confirm(arrived.files)
        looks.append("".join(file.name for file in arrived.files))
        unbound.append(arrived.unbound)
    assert looks == ["", "ab", "c", "d", "ef", ""]
    assert unbound == [7, 5, 4, 3, 1, 1]


def test_a_missing_directory_is_said_so(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(SourceUnusable, match="nowhere"):
        Folder(str(tmp_path / "nowhere")).list("*")


def test_a_name_that_is_not_utf8_is_told_and_left_out(tmp_path: Path) -> None:
    """The other files of the directory are read; the source's warning shows the name, escaped, and what to do."""
    (tmp_path / "good.csv").write_text("1\n")
    with open(os.fsencode(tmp_path) + b"/bad\xff.csv", "wb") as file:
        file.write(b"1\n")

    listing = Folder(str(tmp_path)).list("*.csv")
    assert names(listing) == ["good.csv"]
    assert [file.name for file in listing.refused] == ["bad\\xff.csv"]

    table = FilesTable("t", "csv", str(tmp_path), "*.csv")
    source = FilesIngestion(FilesSource((table,)), cast(SparkSession, None))
    source.discover(Time(1))
    assert source.discover(Time(2)).column("file").to_pylist() == ["good.csv"]
    assert source.warning() == "bad\\xff.csv: not read, its name is not UTF-8: rename it"
    source.warning().encode()


def names(listing: FolderListing) -> list[str]:
    return sorted(file.name for file in listing.files)


def test_must_never_follow_a_link_out_of_the_directory(tmp_path: Path) -> None:
    """Nor one to a link that does; links within it are files like others, and so is what a linked directory holds."""
    landing, secret = tmp_path / "landing", tmp_path / "landing-of-another" / "tls.key"
    for folder in (landing / "..data", secret.parent):
        folder.mkdir(parents=True)
    secret.write_text("key\n")
    (landing / "..data" / "inner").write_text("1\n")
    (landing / "plain.csv").write_text("1\n")
    (landing / "inner.csv").symlink_to("..data/inner")
    (landing / "out.csv").symlink_to(secret)
    (landing / "twice.csv").symlink_to("out.csv")
    (landing / "up.csv").symlink_to("../landing-of-another/tls.key")
    (tmp_path / "current").symlink_to(landing)

    for directory in (landing, tmp_path / "current"):
        listing = Folder(str(directory)).list("*.csv")
        assert names(listing) == ["inner.csv", "plain.csv"]
        assert sorted(file.name for file in listing.refused) == ["out.csv", "twice.csv", "up.csv"]


def test_must_say_which_link_is_not_read_and_never_bind_it(tmp_path: Path) -> None:
    """However often it is looked at; beside it, a file is bound at the second look."""
    (tmp_path / "in").mkdir()
    for path in (tmp_path / "in" / "a.csv", tmp_path / "tls.key"):
        path.write_text("1\n")
    (tmp_path / "in" / "out.csv").symlink_to(tmp_path / "tls.key")
    spec = FilesSource((FilesTable("t", "csv", str(tmp_path / "in")),))
    source = FilesIngestion(spec, cast(SparkSession, None))
    bound = [source.discover(Time(tick)).column("file").to_pylist() for tick in (1, 2, 3)]

    assert bound == [[], ["a.csv"], ["a.csv"]], "what was found is bound once it is confirmed"
    assert source.warning() == "out.csv: not read, it is a link out of its directory"
    assert source.counters()["waiting_files"] == 1


def test_must_never_read_a_link_that_took_the_place_of_a_bound_file(tmp_path: Path) -> None:
    """Though it is as long and as old."""
    landing, secret = tmp_path / "landing", tmp_path / "tls.key"
    landing.mkdir()
    for path in (landing / "a.csv", secret):
        path.write_text("1\n")
        os.utime(path, ns=(7, 7))
    [bound] = Folder(str(landing)).list("*").files
    assert Folder(str(landing)).version_of("a.csv") == bound
    (landing / "a.csv").unlink()
    (landing / "a.csv").symlink_to(secret)

    assert Folder(str(landing)).version_of("a.csv") is None


def test_must_never_list_a_directory_that_leads_to_the_pods_own_files(tmp_path: Path) -> None:
    """Whoever writes to a volume can make such a link in it."""
    (tmp_path / "in").symlink_to("/etc")

    with pytest.raises(SourceUnusable, match="it leads into /etc, whose files are the pod's own"):
        Folder(str(tmp_path / "in")).list("*")


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

    assert Folder(str(tmp_path)).is_complete("f", format_, "none") is expected


def test_known_files_tell_new_from_changed() -> None:
    """A bound file in another version is counted, never given again."""
    known = BoundFiles()
    known.add([FileVersion("a", 1, 1), FileVersion("b", 1, 1)])
    new, changed = known.split([FileVersion("a", 1, 1), FileVersion("b", 2, 5), FileVersion("c", 1, 1)])

    assert ([f.name for f in new], changed) == (["c"], 1)


def test_a_million_known_files_stay_small_and_quick() -> None:
    """16 bytes each; listing a million again finds exactly the one that is new."""
    known = BoundFiles()
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
    known = BoundFiles()
    listed = Folder(str(tmp_path)).list("*.csv").files
    known.add(listed)

    assert known.split(listed) == ([], 0)
