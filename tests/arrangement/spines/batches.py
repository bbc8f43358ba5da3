"""Arrangements of one column, on disk: batches to be opened, merged and deleted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from tests.arrangement.histories import A, Driver, updates
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.arrange import arrange

LAYOUT = Layout.of_rows([pa.int64()], [0])
LARGE = 10_000
"""Rows of a batch that is mapped: it is too large to be kept as it was written."""


def arranged(folder: Path, batches: int, rows: int) -> Manifest:
    """An arrangement of so many batches, each of so many rows."""
    driver = Driver(folder, Manifest.empty(A, LAYOUT, 0), merging=False)
    for step in range(batches):
        context = driver.context(step, step + 1, hydration=step == 0)
        changes = [((rows * step + row,), step, 1) for row in range(rows)]
        list(arrange(context, A, [updates([pa.int64()], changes)]))
        driver.commit(context)
    return driver.manifests[A]


def remove(folder: Path, refs: Iterable[BatchRef]) -> None:
    for ref in refs:
        (folder / ref.file).unlink()


def is_mapped(folder: Path, process: int | str = "self") -> bool:
    """Whether the process maps a file of the folder, be it there or not."""
    return str(folder) in Path(f"/proc/{process}/maps").read_text()
