"""The list of a source's files: what became of each, also for an ingester that starts later."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import Directory
from tests.storage.ingestion_samples import oks
from tidemark_protocol.messages.responses import SourceFile
from tidemark_replica.storage.files.file_list import LISTED_FILES, FileList
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.problems import FileProblem

pytestmark = pytest.mark.spark
BAD_HEADER, BAD_RECORDS = "b,a\nx,1\n", "a,b\n1,x\nnot-a-number,y\n3\n"


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **table)


def states(d: Directory) -> dict[str, tuple[str, str, int, int | None]]:
    return {f.file: (f.state, f.reason, f.errors, f.rows) for f in d.source.files()}


def test_each_file_is_listed_with_what_became_of_it(directory: Callable[..., Directory]) -> None:
    """Rows, errors, reasons; the size and the tick at which it was bound; files that need attention first."""
    d = directory()
    d.put("1.csv", "a,b\n1,x\n2,y\n")
    d.put("2.csv", BAD_HEADER)
    d.put("a b%20c#.csv", BAD_RECORDS)
    d.put("4.csv", "a,b\n1,hal")
    d.ticks()

    assert states(d) == {
        "1.csv": ("read", "", 0, 2),
        "2.csv": ("refused", "SCHEMA_MISMATCH", 1, 0),
        "a b%20c#.csv": ("read", "MALFORMED_RECORD", 2, 1),
        "4.csv": ("pending", "waiting, it does not end with a newline (half written?)", 0, None),
    }
    assert (d.file("1.csv").size, d.file("1.csv").time, d.file("1.csv").table) == (12, d.now, "t")
    assert [f.file for f in d.source.files()] == ["2.csv", "a b%20c#.csv", "4.csv", "1.csv"]
    assert d.source.counters()["bad_files"] == 2


def test_an_ingester_that_starts_later_knows_what_is_wrong(directory: Callable[..., Directory]) -> None:
    """From the bindings and the error rows; the numbers of rows are not kept."""
    d = directory()
    d.put("1.csv", "a,b\n1,x\n")
    d.put("2.csv", BAD_HEADER)
    d.put("3.csv", BAD_RECORDS)
    d.ticks()
    d.restart()
    d.ticks(1)

    assert states(d) == {
        "1.csv": ("read", "", 0, None),
        "2.csv": ("refused", "SCHEMA_MISMATCH", 1, None),
        "3.csv": ("read", "MALFORMED_RECORD", 2, None),
    }
    assert d.file("2.csv").size == len(BAD_HEADER)
    assert d.source.counters()["bad_files"] == 2


def test_dead_letters_cover_files_that_cannot_be_read(directory: Callable[..., Directory]) -> None:
    """One letter that names the file; the table is not in error."""
    d = directory(on_bad_record="deadLetter")
    d.put("1.csv", "a,b\n1,x\n")
    (d.folder / "2.csv").write_bytes("a,b\u00fc\n2,y\n".encode("latin-1"))
    d.put("3.csv", BAD_HEADER)
    d.ticks()

    assert d.rows() == [(1, "x")]
    assert d.errors() == {}
    assert oks(d.root, "t_dead_letter") == [
        ("2.csv", '{"code":"FILE_UNREADABLE","expression":"2.csv"}\n'),
        ("3.csv", '{"code":"SCHEMA_MISMATCH","expression":"3.csv"}\n'),
    ]
    for _ in range(2):
        assert {f.file: (f.state, f.reason, f.errors) for f in d.source.files()} == {
            "1.csv": ("read", "", 0),
            "2.csv": ("refused", "FILE_UNREADABLE", 0),
            "3.csv": ("refused", "SCHEMA_MISMATCH", 0),
        }
        assert d.source.counters()["bad_files"] == 0
        d.restart()
        d.ticks(1)


def test_crash_a_file_that_is_refused_between_a_table_and_its_dead_letters(
    directory: Callable[..., Directory],
) -> None:
    """The table has its row by then and keeps it; the letters, which cannot be read any more, are replaced by one."""
    d = directory(on_bad_record="deadLetter")
    path = d.put("1.csv", BAD_RECORDS)
    d.ticks(1)
    append, done = d.ingester._append, []

    def append_two_then_die(*args: object) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(append(*args))  # type: ignore[arg-type, func-returns-value]

    d.ingester._append = append_two_then_die  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        d.ticks(1)
    os.unlink(path)
    d.restart()

    assert d.rows() == [(1, "x")]
    assert d.errors() == {}
    assert oks(d.root, "t_dead_letter") == [("1.csv", '{"code":"DEAD_LETTERS_LOST","expression":"1.csv"}\n')]


def test_the_list_is_bounded() -> None:
    """The files that need attention are shown, however many others there are."""
    made = FileList()
    made.restore("t", [FileVersion(f"{i}", 1, i) for i in range(2 * LISTED_FILES)])
    made.add_problems("t", {"0": FileProblem("FILE_MISSING", 1, in_error=True)})
    made.set_pending([SourceFile("t", "new", 1, "pending")])

    shown = made.listed()
    assert len(shown) == LISTED_FILES
    assert [f.file for f in shown[:3]] == ["0", "new", f"{2 * LISTED_FILES - 1}"]
    assert made.in_error == 1
