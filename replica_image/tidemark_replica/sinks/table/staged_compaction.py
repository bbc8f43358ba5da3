"""Compacts the staged output of a sink that may not write yet, so that it stays about as large as the view.

    [snapshot][step][step] ... [step]      updates at times before the shard's upper
    └──────────── moved up to upper - 1, consolidated ──► one file, beside those of the last step

A pending revision may wait for long, and its staged output would grow with every change. A correction never writes
before the shard's upper, so earlier times need not be told apart.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark_persist import Shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import CompactionInput, Staged
from tidemark_replica.sinks.table.shard_updates import Rows, compacted, consolidated, staged_bytes
from tidemark_replica.values.arrow_files import write_tables


@dataclass(frozen=True)
class CompactedStage:
    """The compacted output, and the staged outputs to release: all except the one whose folder has the new file."""

    compaction: CompactionInput
    staged: Staged
    released: tuple[Staged, ...]


def compact_staged(shard: Shard, compaction: CompactionInput) -> CompactedStage:
    """Compacts the staged output, of which some has files. Removes the files in the folder of the new one at once."""
    last = compaction.staged[-1]
    home = [staged for staged in compaction.staged if staged.delta is not None and staged.delta.files][-1]
    assert home.delta is not None
    rows, folder = Rows.of(shard), home.delta.files[0].parent
    tables = (compacted(table, compaction) for table in rows.read(compaction.deltas))
    path = folder / f"folded-{uuid.uuid4().hex}.arrow"
    try:
        count = write_tables(path, rows.schema, consolidated(rows, tables, staged_bytes(compaction), folder))
    except BaseException:
        path.unlink(missing_ok=True)  # it may have filled the disk, and is written again
        raise
    for file in home.delta.files:
        with suppress(OSError):
            file.unlink()
    delta = SinkDelta(
        home.delta.export, Time(compaction.lower), Frontier.decode(last.upper), rows.schema, (path,), count
    )
    staged = Staged(compaction.lower, last.upper, delta, lambda: _release(path, home))
    return CompactedStage(compaction, staged, tuple(each for each in compaction.staged if each is not home))


def _release(path: Path, home: Staged) -> None:
    path.unlink(missing_ok=True)
    home.release()
