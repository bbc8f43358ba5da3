"""A source whose tables lie on a disk that is full: it says so, nothing half-written is bound, and with room it goes
on.

before      [ bindings, table | filler        |  ]
a tick      [ bindings, table | filler        |✗ ]     an error that names the folder and what to do
meanwhile   [ bindings, table | filler        |  ]     each time that can be read has whole commits or calls
filler goes [ bindings, table, more           |  ]     each row is there once
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.errors import PySparkException

from tests.disk_fixtures import PAGE, fill
from tests.storage.ingestion_samples import oks
from tidemark_persist import PersistError, open_shard
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.values.failure_text import public_text_with_type

BATCH = 20_000
"""Rows of a commit, call, transaction, file ...: some 160 KB, which do not compress."""

ROOMS = pytest.mark.parametrize("room", [0, PAGE, 2 * PAGE, 4 * PAGE, 24 * PAGE])
"""With no room the binding fails, with more the commit of it, or the data that it names, or their commit."""
ROOMS_AND_BEGIN = pytest.mark.parametrize(
    ("room", "is_first"), [(0, False), (2 * PAGE, False), (24 * PAGE, False), (4 * PAGE, True), (24 * PAGE, True)]
)
"""`is_first`: there was no tick before."""


def numbers(batch: int) -> list[int]:
    """Different in all batches, without an order that would compress them."""
    return [(batch * BATCH + n) * 0x9E3779B97F4A7C15 % (1 << 63) for n in range(BATCH)]


class Ingested(Protocol):
    """A source of one table with one column of interest. `shards`: where its bindings and its table lie. `is_whole`:
    whether each batch comes as a whole."""

    shards: Path
    table: str
    is_whole: bool

    def more(self, batch: int) -> None:
        """The upstream gets another batch, as a whole."""

    def tick(self) -> None:
        """Make as many ticks as are needed to read what is there. Raises what the ingester raises."""

    def catch_up(self) -> None:
        """Ticks until all batches are there; clients repeat calls that could not be written."""

    def begin_again(self) -> None:
        """Begin again as after a failure: a new ingester recovers. Raises what it raises."""


def batches(of: Ingested, as_of: int | None = None) -> float:
    """The number of batches that the table has, each row once, none before those of earlier ones."""
    if open_shard(f"{of.shards}/{of.table}").state().upper == 0:
        return 0
    found = sorted(row[0] for row in oks(of.shards, of.table, as_of))  # type: ignore[type-var]
    every = [n for batch in range(1 + len(found) // BATCH) for n in numbers(batch)]
    assert found == sorted(every[: len(found)]), f"{len(found)} rows"
    count = len(found) / BATCH
    assert not of.is_whole or count.is_integer(), f"{len(found)} rows are no whole batches"
    return count


def failure(attempt: Callable[[], None]) -> str:
    """The error of an ingester's attempt, as a condition shows it; empty where it succeeds."""
    try:
        attempt()
    except (PersistError, IngestionError, PySparkException) as error:
        return public_text_with_type(error)
    return ""


def check_that_a_full_disk_is_told(of: Ingested, room: int, is_first: bool = False) -> None:
    """The disk of the tables gets full but for `room` bytes before a tick. With room, each row is there once."""
    if not is_first:
        of.tick()
        assert batches(of) == 1
        filler = fill(of.shards, room)
        of.more(1)
    else:
        filler = fill(of.shards, room)
    said = failure(of.tick)
    assert str(of.shards) in said
    assert "No space left on device" in said
    assert "make room on its disk, or enlarge its volume" in said
    again = failure(of.begin_again) or failure(of.tick)  # as its thread does; a commit may find the last page
    assert not again or "make room on its disk" in again
    assert [file for file in of.shards.rglob("*") if file.suffix == ".tmp" or "#" in file.name] == []

    filler.unlink()
    before = 0 if is_first else 1
    assert before <= batches(of) <= before + 1
    of.begin_again()
    of.more(before + 1)
    of.catch_up()
    assert batches(of) == before + 2


def unnamed_files(shards: Path, *tables: str) -> list[Path]:
    """The data files beside the tables that no commit names."""
    found = []
    for table in tables:
        log = "".join(entry.read_text() for entry in (shards / table / "_delta_log").glob("*.json"))
        found += [file for file in (shards / table).rglob("*.parquet") if file.name not in log]
    return found
