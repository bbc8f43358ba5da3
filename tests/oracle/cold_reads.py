"""Which files of state a process opens: what its cache did not have."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tidemark_replica.arrangement import batch
from tidemark_replica.arrangement.batch import BatchRef
from tidemark_replica.arrangement.updates import Updates
from tidemark_replica.render.pipeline import Pipeline
from tidemark_replica.render.slots import Feed
from tidemark_replica.render.stage import run_stage

_open_batch = batch.open_batch


def run_watched(log: Path, name: str, tree: Pipeline, feed: Feed, rows: Iterable[Any]) -> Iterator[Updates]:
    """In the place of `stage.run_stage`: what is opened is written down, a file of the log for each process."""

    def opened(directory: Path, ref: BatchRef, *how: Any, **more: Any) -> Any:
        with (log / str(os.getpid())).open("a") as lines:
            lines.write(f"{ref.file}\n")
        return _open_batch(directory, ref, *how, **more)

    batch.open_batch = opened
    yield from run_stage(name, tree, feed, rows)


def cold_reads(log: Path) -> Counter[tuple[str, str]]:
    """How often each process has opened each file."""
    return Counter((path.name, file) for path in log.iterdir() for file in path.read_text().splitlines())
