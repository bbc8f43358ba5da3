"""What a sink has staged and may not write yet, put together, so that it stays about as large as the view.

    [snapshot][step][step] ... [step]      updates at times before the shard's upper, which are over for this sink
    └──────────── moved up to upper - 1, consolidated ──► one file, beside those of the last step

A revision that waits for its turn may wait for long, and what it stages meanwhile would grow with every change. Whoever
is to correct a shard may not write before its upper, so there is no need to tell the times before that apart.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemark_persist import Shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import CompactionInput, Staged
from tidemark_replica.sinks.table.shard_updates import Rows, compacted, consolidated, staged_bytes


@dataclass(frozen=True)
class CompactedStage:
    """One for all that was staged, and those that are needed no more: all but the one in whose folder it is."""

    whole: CompactionInput
    staged: Staged
    gone: tuple[Staged, ...]


def compact_staged(shard: Shard, whole: CompactionInput) -> CompactedStage:
    """Something of it has files. Those in whose folder the new one is go at once."""
    last = whole.staged[-1]
    home = [staged for staged in whole.staged if staged.delta is not None and staged.delta.files][-1]
    assert home.delta is not None
    rows, folder = Rows.of(shard), home.delta.files[0].parent
    tables = (compacted(table, whole) for table in rows.read(whole.deltas))
    path = folder / f"folded-{uuid.uuid4().hex}.arrow"
    try:
        count = _write(path, rows.schema, consolidated(rows, tables, staged_bytes(whole), folder))
    except BaseException:
        path.unlink(missing_ok=True)  # it may be what the disk is full of, and is made anew
        raise
    for file in home.delta.files:
        with suppress(OSError):
            file.unlink()
    delta = SinkDelta(home.delta.export, Time(whole.lower), Frontier.decode(last.upper), rows.schema, (path,), count)
    staged = Staged(whole.lower, last.upper, delta, lambda: _release(path, home))
    return CompactedStage(whole, staged, tuple(each for each in whole.staged if each is not home))


def _write(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """How many rows."""
    count = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for table in tables:
            writer.write_table(table)
            count += table.num_rows
    return count


def _release(path: Path, home: Staged) -> None:
    path.unlink(missing_ok=True)
    home.release()
