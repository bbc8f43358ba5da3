"""Primary keys of tables of files, read by a real Spark: a file that violates one gives an error and no row."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import Directory
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable
from tidemark_protocol.types import DOUBLE, Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files.inspect import tables_of

pytestmark = pytest.mark.spark

Rows = list[tuple[int, str]]


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **{"primary_key": ("a",), **table})


def violated(name: str) -> str:
    return f'{{"code":"KEY_VIOLATED","expression":"{name}"}}'


def text(rows: Rows, *more: str) -> str:
    return "a,b\n" + "".join(f"{a},{b}\n" for a, b in rows) + "".join(f"{line}\n" for line in more)


def test_oracle_files_are_taken_or_refused_as_a_whole(directory: Callable[..., Directory]) -> None:
    """Files of a tick are taken as if they came one after the other by name; an ingester that dies changes nothing."""
    draw, d = random.Random(11), directory()
    taken: dict[int, str] = {}
    refused: dict[str, int] = {}
    for number in range(5):
        for each in range(draw.choice([1, 3, 6])):
            rows = [(draw.randrange(60), f"{number}-{each}") for _ in range(3)]
            name = f"{number}-{each}.csv"
            d.put(name, text(rows))
            if len(dict(rows)) == 3 and not taken.keys() & dict(rows).keys():
                taken |= dict(rows)
            else:
                refused[violated(name)] = 1
        if number % 2:
            d.die_before_reading()
            d.restart()
        else:
            d.ticks()
        assert d.rows() == sorted(taken.items(), key=repr)
        assert d.errors() == refused
    assert len(refused) > 3
    assert len(taken) > 10


def test_null_in_a_key_and_bad_records(directory: Callable[..., Directory]) -> None:
    """Dead letters are set aside as of any file. The error stands also where bad records are set aside: views must not
    go on as if the file were not there."""
    d = directory(on_bad_record="deadLetter")
    d.put("1", text([(1, "x")], "no,y"))
    d.put("2", text([(2, "x")], ",y"))
    d.put("3", text([(1, "z"), (3, "z")], "no,z"))
    d.die_after(5)
    d.restart()
    d.ticks(1)
    assert d.rows() == [(1, "x")]
    assert d.errors() == {violated("2"): 1, violated("3"): 1}
    assert d.letters() == [("1", "no,y"), ("3", "no,z")]
    assert (d.file("3").reason, d.file("3").errors, d.file("1").errors) == ("KEY_VIOLATED", 1, 0)


def test_files_are_let_go_and_read_again(directory: Callable[..., Directory]) -> None:
    """A refused file is taken once the one that has its key is let go, or once it is mended; nothing is changed by a
    request that would violate the key."""
    d = directory()
    d.put("1", text([(1, "x")]))
    d.put("2", text([(1, "y"), (2, "y")]))
    d.ticks()
    assert d.ask(REREAD, "2").startswith(
        "KEY_VIOLATED: 2 rows have one primary key (a); the replica's log has the first such key; release"
    )
    assert (d.rows(), d.errors()) == ([(1, "x")], {violated("2"): 1})
    assert (d.ask(RELEASE, "1"), d.ask(REREAD, "2")) == ("", "")
    assert (d.rows(), d.errors()) == ([(1, "y"), (2, "y")], {})
    assert d.ask(REREAD, "1").startswith("KEY_VIOLATED")
    d.put("1", text([(3, "x")]))
    assert d.ask(REREAD, "1") == ""
    assert d.ask(RELEASE, "2") == ""
    d.put("2", text([(1, "z")]))
    d.ticks()
    assert (d.rows(), d.errors()) == ([(1, "z"), (3, "x")], {})


def test_a_key_that_cannot_be_checked_is_refused(spark: SparkSession) -> None:
    table = FilesTable("t", "csv", "/in", columns=(Column("x", DOUBLE),), primary_key=("x",))
    with pytest.raises(SourceUnusable, match="table t: primaryKey names 'x' of type double: a key has no floating"):
        tables_of(spark, FilesSource((table,)))
