"""Large appends are written by Spark's tasks: the driver names the pieces, and commits the files that the tasks report.

    no correction   staged pieces ──a task for some──► moved, consolidated ──► a file beside the shard

    a correction    staged pieces ─┐ a task for some: divided by a hash ┌── a task for each share:
                    files' pieces ─┘ of the row, to a file in scratch  ─┘   consolidated ──► a file beside the shard

Memory of the driver holds the names alone. A task holds its pieces, or a share. Only what ended tasks report is
appended, in one commit, so a task that runs twice leaves a file of which nothing knows; vacuum removes it a day later.
Where there is no correction, rows of two tasks are not summed up: readers and compactions do that.

Where no executor is there, as a job would wait for one, and after tasks failed, the driver writes the append.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_persist import FilePart, PartGone, Shard, StagedFile, consolidate, read_part, write_staged
from tidemark_persist.files.spill import by_share, row_hash
from tidemark_replica.render.execution.spark_runner import failure
from tidemark_replica.render.stepped_dataflow import SinkDelta
from tidemark_replica.sinks.sink_progress import AppendAttempt
from tidemark_replica.sinks.table.shard_updates import Rows, Table, moved, negated, staged_bytes
from tidemark_replica.values.arrow_files import read_batches

LARGE_BYTES = 64 << 20
"""Appends that read more are written by tasks: below, starting the jobs takes longer than the work."""
PIECE_BYTES = 32 << 20
PIECE_ROWS = 500_000
SHARES_MAX = 1024
_SHARES = b"shares"


@dataclass(frozen=True)
class StagedPiece:
    """The batches [first, end) of a staged file. `weight`: its share of what a task should read."""

    path: Path
    first: int
    end: int
    weight: float


@dataclass(frozen=True)
class PartPiece:
    """Every n-th row group of a part of the shard, from the i-th on: `turn` is (i, n)."""

    part: FilePart
    turn: tuple[int, int]
    weight: float


Piece = StagedPiece | PartPiece
Load = Sequence[Piece]
"""The pieces of one task."""


@dataclass(frozen=True)
class PieceReader:
    """Reads pieces as the updates of an append. It travels to the tasks. `append`: without staged output."""

    rows: Rows
    append: AppendAttempt

    def read(self, load: Load) -> Iterator[Table]:
        """The updates of all pieces, in tables."""
        for piece in load:
            yield from self._read(piece)

    def _read(self, piece: Piece) -> Iterator[Table]:
        if isinstance(piece, PartPiece):
            for batch in read_part(piece.part, turn=piece.turn):
                rows = negated(pa.Table.from_batches([batch]), self.append.first_time)
                yield rows.select(self.rows.schema.names)
            return
        for batch in read_batches(piece.path, piece.first, piece.end):
            yield moved(self.rows.named(batch), self.append)


@dataclass(frozen=True)
class WritePieces:
    """The function of a job: writes each load as a file beside the shard."""

    location: str
    schema: pa.Schema
    reader: PieceReader
    loads: Sequence[Load]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            yield from _written(self.location, self.schema, list(self.reader.read(self.loads[number])))


@dataclass(frozen=True)
class DividePieces:
    """The function of a job: divides each load by a hash of the row. A share is a batch, or several; the metadata of
    the file names the share of each."""

    folder: Path
    shares: int
    reader: PieceReader
    loads: Sequence[Load]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            held: dict[int, list[Table]] = {}
            for table in self.reader.read(self.loads[number]):
                for share, rows in by_share(table, row_hash(table) % np.uint64(self.shares)):
                    held.setdefault(share, []).append(rows)
            if held:
                path = self.folder / f"{number}.arrow"
                _write_shares(path, self.reader.rows.schema, held)
                yield _reported(str(path))


@dataclass(frozen=True)
class WriteShares:
    """The function of a job: writes each share of the divided loads as a file beside the shard."""

    location: str
    schema: pa.Schema
    paths: Sequence[Path]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            yield from _written(self.location, self.schema, list(_read_share(self.paths, number)))


class TaskWriter:
    """Writes the large appends of one sink. Runs on a pool, one append at a time."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._has_failed = False

    def stage(self, shard: Shard, append: AppendAttempt, lost: Collection[str]) -> list[StagedFile] | None:
        """Like `shard_updates.stage`; None where the driver is to write the append. Raises PartGone, StepFailed."""
        if self._has_failed or not any(delta.files for delta in append.deltas):
            self._has_failed = False
            return None
        if not _has_executors(self._session()):
            return None
        if not (append.correct and append.expected_upper > 0):
            if staged_bytes(append) <= LARGE_BYTES:
                return None
            loads = _loads(_staged(append.deltas))
            function = WritePieces(shard.location, shard.schema, _reader(shard, append), loads)
            return self._staged_files(function, len(loads), "write")
        with shard.lease():
            parts = [part for part in shard.snapshot_parts(append.expected_upper - 1) if part.path not in lost]
            size = sum(part.size for part in parts) + staged_bytes(append)
            return self._corrected(shard, append, parts, size) if size > LARGE_BYTES else None

    def _corrected(self, shard: Shard, append: AppendAttempt, parts: Sequence[FilePart], size: int) -> list[StagedFile]:
        loads = [*_loads(_staged(append.deltas)), *_loads(_of_parts(parts))]
        shares = min(1 + size // PIECE_BYTES, SHARES_MAX)
        home = next(delta.files[0].parent for delta in append.deltas if delta.files)
        with tempfile.TemporaryDirectory("", "tidemark-shares-", home, ignore_cleanup_errors=True) as folder:
            divide = DividePieces(Path(folder), shares, _reader(shard, append), loads)
            paths = [Path(path) for path in self._run(divide, len(loads), "divide")]
            return self._staged_files(WriteShares(shard.location, shard.schema, paths), shares, "write")

    def _staged_files(self, function: WritePieces | WriteShares, tasks: int, what: str) -> list[StagedFile]:
        return [StagedFile.from_json(text) for text in self._run(function, tasks, what)]

    def _run(self, function: Callable[[Iterable[Any]], Iterator[Any]], tasks: int, what: str) -> list[str]:
        """Runs the job; returns the reports of its tasks. A task that finds a file gone tells so by name."""
        session = self._session()
        try:
            rows = session.range(0, tasks, 1, tasks).mapInArrow(function, "reported string").collect()
        except Exception as error:
            if PartGone.__name__ in str(error):
                raise PartGone("a file of the table is gone") from error
            self._has_failed = True
            raise failure(f"the job to {what} an append", error, session.sparkContext.master) from error
        return [row.reported for row in rows]


def _has_executors(session: Any) -> bool:
    """Whether tasks would run now; with a local master they run in the driver."""
    context = session.sparkContext
    return str(context.master).startswith("local") or int(context._jsc.sc().getExecutorIds().size()) > 0


def _reader(shard: Shard, append: AppendAttempt) -> PieceReader:
    return PieceReader(Rows.of(shard), replace(append, staged=()))


def _staged(deltas: Iterable[SinkDelta]) -> Iterator[Piece]:
    """Pieces of PIECE_BYTES or less; a batch is not divided."""
    for path in (path for delta in deltas for path in delta.files):
        with pa.memory_map(str(path)) as source:
            count = pa.ipc.open_file(source).num_record_batches
        size = path.stat().st_size
        pieces = max(min(1 + size // PIECE_BYTES, count), 1)
        bounds = [count * index // pieces for index in range(pieces + 1)]
        for first, end in pairwise(bounds):
            if first < end:
                yield StagedPiece(path, first, end, size * (end - first) / count / PIECE_BYTES)


def _of_parts(parts: Iterable[FilePart]) -> Iterator[Piece]:
    for part in parts:
        turns = 1 + part.rows_at_most // PIECE_ROWS
        for turn in range(turns):
            yield PartPiece(part, (turn, turns), part.rows_at_most / turns / PIECE_ROWS)


def _loads(pieces: Iterable[Piece]) -> Sequence[Load]:
    """Small pieces go to one task."""
    loads, weight = list[list[Piece]](), 0.0
    for piece in pieces:
        if not loads or weight + piece.weight > 1:
            loads.append([])
            weight = 0.0
        loads[-1].append(piece)
        weight += piece.weight
    return loads


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _written(location: str, schema: pa.Schema, tables: Sequence[Table]) -> Iterator[pa.RecordBatch]:
    if tables:
        file = write_staged(location, consolidate(pa.concat_tables(tables)), schema=schema)
        if file is not None:
            yield _reported(file.to_json())


def _reported(text: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["reported"])


def _write_shares(path: Path, schema: pa.Schema, held: dict[int, list[Table]]) -> None:
    """The file is complete or absent; a task that runs again writes the same."""
    batches = [(s, b) for s, tables in held.items() for b in pa.concat_tables(tables).combine_chunks().to_batches()]
    named = schema.with_metadata({_SHARES: json.dumps([share for share, _ in batches]).encode()})
    draft = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_file(sink, named) as writer:
        for _, batch in batches:
            writer.write_batch(batch.replace_schema_metadata(named.metadata))
    draft.replace(path)


def _read_share(paths: Iterable[Path], share: int) -> Iterator[Table]:
    for path in paths:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            for index, found in enumerate(json.loads(reader.schema.metadata[_SHARES])):
                if found == share:
                    yield pa.Table.from_batches([reader.get_batch(index)]).replace_schema_metadata(None)
