"""CSV as Spark writes it, by a Spark job: NULL is empty, an empty text is "", a quote inside quotes is \\".

rows ──► Arrow files, one per share ──► one job, a task per share ──► part-00000.csv ...   a header in each
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tidemark_protocol.types import Column
from tidemark_replica.values.arrow_files import read_batches, write_tables
from tidemark_replica.values.arrow_types import arrow_schema

_SHARES, _WRITTEN = "shares", "written"
Table = Any


def write_csv(
    folder: Path, shares: Iterator[Iterator[Table]], columns: Sequence[Column], session: Callable[[], Any]
) -> tuple[int, list[str]]:
    """Writes the files; returns the number of rows and the names of the files."""
    shares_folder = folder / _SHARES
    shares_folder.mkdir()
    rows, count = 0, 0
    for tables in shares:
        rows += write_tables(shares_folder / f"{count}.arrow", arrow_schema(columns), tables)
        count += 1
    if count == 0:
        write_tables(shares_folder / "0.arrow", arrow_schema(columns), ())
    leaf = session().range(0, max(count, 1), 1, max(count, 1))
    names = ", ".join(f"`{c.name.replace('`', '``')}` {c.type}" for c in columns)
    # Hadoop takes the path literally: with URL quoting a blank would name another folder
    leaf.mapInArrow(partial(_read, shares_folder), names).write.option("header", True).csv(
        f"file://{folder / _WRITTEN}"
    )
    return rows, _take_over(folder)


def _read(shares_folder: Path, batches: Iterable[Any]) -> Iterator[Any]:
    """Runs in a Spark task: the rows of the named shares."""
    for batch in batches:
        for share in batch.column(0).to_pylist():
            yield from read_batches(shares_folder / f"{share}.arrow")


def _take_over(folder: Path) -> list[str]:
    """Renames Spark's files and removes everything else."""
    files = []
    for number, path in enumerate(sorted((folder / _WRITTEN).glob("part-*.csv"))):
        files.append(f"part-{number:05}.csv")
        path.rename(folder / files[-1])
    for leftover in (_WRITTEN, _SHARES):
        shutil.rmtree(folder / leftover)
    return files
