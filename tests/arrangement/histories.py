"""Histories of updates, and the models that kernels are compared with: multisets as plain dictionaries."""

import decimal
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.hashing import factor, hash_rows
from tidemark_replica.arrangement.rows.task_share import WHOLE_SHARE, TaskShare
from tidemark_replica.arrangement.rows.updates import Updates, update_schema
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import apply, plan_merges
from tidemark_replica.arrangement.step import BatchWriter, StepContext, StepId, merge

DEC15, DEC38 = pa.decimal128(15, 2), pa.decimal128(38, 4)
PAIR = pa.struct([("a", pa.float64()), ("b", pa.string())])
NESTED = [
    pa.list_(pa.float64()),
    PAIR,
    pa.list_(PAIR),
    pa.list_(pa.list_(pa.string())),
    pa.struct([("l", pa.list_(DEC15))]),
]
FLAT = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    DEC15,
    DEC38,
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
]
TYPES = [*FLAT, *NESTED]
NAN_WITH_PAYLOAD = float(np.uint64(0x7FF8000000000123).view(np.float64))


def seeds(quick: int, slow: int) -> list:
    """The first few for every run, the others for the slow one."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, slow))]


def unscaled(value: int, scale: int) -> decimal.Decimal:
    """value * 10^-scale, exactly."""
    return decimal.Decimal(value).scaleb(-scale, decimal.Context(prec=80))


def pool(t: pa.DataType) -> list:
    """Values of a type that are easily taken for one another, and NULL."""
    if pa.types.is_list(t):
        a, b, *_, last = pool(t.value_type)
        return [[], [a], [b], [a, b], [b, a], [last], [a, last], [last, a], [a, a, a], None]
    if pa.types.is_struct(t):
        pools = [pool(field.type) for field in t]
        rows = [[p[i % len(p)] for p in pools] for i in range(6)] + [[None] * len(pools), [p[0] for p in pools]]
        return [*(dict(zip([f.name for f in t], row, strict=True)) for row in rows), None]
    if pa.types.is_boolean(t):
        return [True, False, None]
    if pa.types.is_floating(t):
        return [0.0, -0.0, 1.0, math.nan, NAN_WITH_PAYLOAD, math.inf, -math.inf, 1.5, None]
    if pa.types.is_decimal(t):
        top = unscaled(10**t.precision - 1, t.scale)
        return [decimal.Decimal(0), decimal.Decimal("-0.01"), decimal.Decimal("1.50"), top, top.copy_negate(), None]
    if pa.types.is_string(t):
        return [
            "",
            "a",
            "\0",
            "\0\0",
            "abcdefgh",
            "abcdefg",
            "abcdefghi",
            "ä" * 20,
            "x" * 256,
            "x" * 257,
            "y" * 999,
            None,
        ]
    if pa.types.is_binary(t):
        return [b"", b"\0", b"\0" * 8, b"\0" * 9, b"\xff" * 300, None]
    if pa.types.is_date32(t) or pa.types.is_timestamp(t):
        return [
            pa.scalar(v, pa.int32() if t.bit_width == 32 else pa.int64()).cast(t).as_py() for v in (0, -1, 19000)
        ] + [None]
    top = 2 ** (t.bit_width - 1)
    return [0, 1, -1, top - 1, -top, None]


def random_column(rng: np.random.Generator, t: pa.DataType, rows: int) -> pa.Array:
    """A column from the type's pool: sliced, and with garbage under its NULLs, as data from elsewhere comes."""
    values = pool(t)
    column = pa.array([values[i] for i in rng.integers(0, len(values), rows + 3)], t)
    return with_garbage_under_nulls(column, rng).slice(3)


def with_garbage_under_nulls(column: pa.Array, rng: np.random.Generator) -> pa.Array:
    """The same column with random bytes where it is NULL (fixed-width types of whole bytes; lists have elements)."""
    if pa.types.is_list(column.type):
        return with_elements_under_nulls(column)
    if pa.types.is_struct(column.type):
        return column
    width = column.type.bit_width if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) else 1
    if column.null_count == 0 or width == 1:
        return column
    data = np.frombuffer(column.buffers()[1], np.uint8)[: len(column) * width // 8].reshape(len(column), -1).copy()
    nulls = np.flatnonzero(np.asarray(column.is_null()))
    data[nulls] = rng.integers(0, 256, (len(nulls), width // 8))
    return pa.Array.from_buffers(column.type, len(column), [column.buffers()[0], pa.py_buffer(data.tobytes())])


def with_elements_under_nulls(column: pa.Array) -> pa.Array:
    """The same column with lists that are not empty where it is NULL."""
    if column.null_count == 0:
        return column
    filled = pa.array([pool(column.type)[3] if v is None else v for v in column.to_pylist()], column.type)
    return pa.ListArray.from_arrays(filled.offsets, filled.values, type=column.type, mask=column.is_null())


def plain(value: object) -> object:
    """A value as SQL groups it: one NaN, one zero."""
    if isinstance(value, list | dict):
        return tuple(map(plain, value.values() if isinstance(value, dict) else value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def contents(batches: Updates | Iterable[Updates]) -> Counter:
    """{(row, error, time): diff} without zeros."""
    result: Counter = Counter()
    for batch in [batches] if isinstance(batches, pa.RecordBatch) else batches:
        *columns, times, diffs, errors = [c.to_pylist() for c in batch.columns]
        rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
        for row, time, diff, error in zip(rows, times, diffs, errors, strict=True):
            result[tuple(map(plain, row)), error, time] += diff
    return Counter({k: d for k, d in result.items() if d})


def at(history: Counter, as_of: int) -> Counter:
    """{(row, error): multiplicity} at a time."""
    result: Counter = Counter()
    for (row, error, time), diff in history.items():
        if time <= as_of:
            result[row, error] += diff
    return Counter({k: d for k, d in result.items() if d})


def updates(types: list[pa.DataType], rows: list[tuple]) -> Updates:
    """A batch from (values, time, diff) or (error, time, diff) tuples."""
    columns: list[list] = [[] for _ in range(len(types) + 3)]
    for row, time, diff in rows:
        values, error = ([None] * len(types), row) if isinstance(row, str) else (row, None)
        for column, value in zip(columns, [*values, time, diff, error], strict=True):
            column.append(value)
    schema = update_schema(types)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def colliding(first: pa.Array) -> list[int]:
    """int64 values b such that all rows (first, b) have one and the same 64-bit hash."""
    place_0 = unmix(hash_rows([first], len(first)))  # but for a constant
    return number_of(np.uint64(0x123456789ABCDEF) - place_0, 1).tolist()


def number_of(spread: np.ndarray, position: int) -> np.ndarray:
    """The int64 values that add so much to a row's hash, as its column at that position."""
    folded = spread * np.uint64(pow(int(factor(position)), -1, 2**64))
    return (folded ^ (folded >> np.uint64(32))).view(np.int64)


def unmix(x: np.ndarray) -> np.ndarray:
    """The inverse of hashing.mix."""

    def unshift(v: np.ndarray, s: int) -> np.ndarray:
        result = v.copy()
        for _ in range(64 // s + 1):
            result = v ^ (result >> np.uint64(s))
        return result

    inverse1 = np.uint64(pow(0xBF58476D1CE4E5B9, -1, 2**64))
    inverse2 = np.uint64(pow(0x94D049BB133111EB, -1, 2**64))
    x = unshift(x, 31) * inverse2
    x = unshift(x, 27) * inverse1
    return unshift(x, 30) - np.uint64(0x9E3779B97F4A7C15)


class Driver:
    """Does the work of the replica's driver around kernels: pins manifests, commits what a step wrote, merges."""

    def __init__(self, directory: Path, *manifests: Manifest, chunk_rows: int = 1 << 18, merging: bool = True) -> None:
        self.directory, self.chunk_rows, self.merging = directory, chunk_rows, merging
        self.manifests = {m.arrangement: m for m in manifests}
        self.cache = BatchCache(directory)
        self.steps = 0

    def context(
        self, lower: int, upper: int, *, hydration: bool = False, share: TaskShare = WHOLE_SHARE
    ) -> StepContext:
        self.steps += 1
        writer = BatchWriter(self.directory, StepId(f"s{self.steps}"))
        return StepContext(lower, upper, hydration, self.manifests, self.cache, writer, share, self.chunk_rows)

    def commit(self, context: StepContext, *, compact: bool = False) -> None:
        after = {}
        for name, manifest in self.manifests.items():
            refs = context.writer.written.get(name, [])
            manifest = manifest.append(refs, context.lower, context.upper)
            after[name] = self.merged(manifest.allow_compaction(context.upper - 1) if compact else manifest)
        self.manifests = after

    def merged(self, manifest: Manifest) -> Manifest:
        for task in plan_merges(manifest) if self.merging else ():
            self.steps += 1
            writer = BatchWriter(self.directory, StepId(f"m{self.steps}"))
            manifest = apply(manifest, task, merge(task, manifest.layout, self.cache, writer))
        return manifest


A = ArrangementId("a")
