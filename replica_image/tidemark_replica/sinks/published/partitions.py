"""The partitions of a table: the files that have the same values in its partition columns, which no file repeats.

    partition   ("de", "2026-11-26", None)     the values as the log has them, in the order of the partition columns

    DECIMAL(10,2)    1.50                             with all digits of its scale, without an exponent
    TIMESTAMP        2026-11-26T08:00:00.000000Z      in UTC, which a session's time zone does not change
    TIMESTAMP_NTZ    2026-11-26 08:00:00.000000

Delta Lake reads an empty text as NULL, so such a row is refused: the two would be one partition. The columns are of
types whose text is exact (`can_partition` of the protocol), and equal values have one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tidemark_persist import PersistError
from tidemark_replica.sinks.published.hash_prefix import first_bits, hashes

Partition = tuple[str | None, ...]
PARTITIONS_MAX = 10_000
HISTORY_PARTITIONS_MAX = 10 * PARTITIONS_MAX
"""Partitions of the updates that contents are computed from, with those that have no rows any more."""
BEYOND_YEARS = "beyond"
"""Stands for the text of a date or a timestamp that has none."""
SHARES = 64
"""The contents are divided into about so many shares at most; there are no more than four times as many."""


class PartitionsNotSupported(PersistError):
    """The view's rows cannot be partitioned as its manifest says."""


def partitions(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition, in their order. Without columns all rows are of one partition, also where there are
    none. `rows`: consolidated. Raises PartitionsNotSupported."""
    fields = [rows.schema.field(name) for name in columns]
    for partition, found in groups(rows, columns):
        check_partition(fields, partition)
        yield partition, found


def groups(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """The same for updates, whose rows may be gone by now: values that no partition can have are given, too."""
    if not columns:
        yield (), rows
        return
    codes = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        _, codes = np.unique(codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, np.append(starts, len(order))[1:], strict=True):
        found = rows.take(pa.array(order[start:end]))
        yield tuple(_text(found.column(name)[0]) for name in columns), found


def _text(value: pa.Scalar) -> str | None:
    """The text of a value; of an empty text itself, which is no NULL yet."""
    try:
        found = value.as_py()
    except (OverflowError, ValueError):
        return BEYOND_YEARS
    return "" if found == "" else partition_text(found)


def check_partition(fields: Sequence[pa.Field], partition: Partition) -> None:
    """Raises PartitionsNotSupported where a table cannot have it. `fields`: the partition columns."""
    for each, text in zip(fields, partition, strict=True):
        if text == "":
            raise PartitionsNotSupported(
                f"column {each.name} has an empty text, which partitions of Delta tables cannot tell from NULL: write "
                f"nullif({each.name}, '') in the SQL, or take the column out of partitionBy"
            )
        if text == BEYOND_YEARS and (pa.types.is_date(each.type) or pa.types.is_timestamp(each.type)):
            what = "date" if pa.types.is_date(each.type) else "timestamp"
            raise PartitionsNotSupported(
                f"column {each.name} has a {what} beyond the years 1 to 9999, which has no text in Delta tables: "
                "correct the row, or take the column out of partitionBy"
            )


def partition_text(value: object) -> str | None:
    """A value of a partition column as the log has it."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(" ", "microseconds")
        return f"{value.replace(tzinfo=None).isoformat('T', 'microseconds')}Z"  # columns of Arrow are in UTC
    return str(value)


def with_partition(rows: pa.Table, columns: Sequence[str], partition: Partition, schema: pa.Schema) -> pa.Table:
    """The rows of a file, with the columns that it does not repeat."""
    for name, text in zip(columns, partition, strict=True):
        constant = pa.scalar(text, pa.string()).cast(schema.field(name).type)
        rows = rows.append_column(name, pa.repeat(constant, rows.num_rows))
    return rows.select(schema.names).cast(schema)


@dataclass
class PartitionLayout:
    """The division of the contents into shares, and of these into files: a large partition has 2 ** `bits` shares by
    the first bits of the rows' hashes, and several small ones have a share together."""

    columns: Sequence[str]
    shares: int = 0
    _first: dict[Partition, int] = field(default_factory=dict)
    _bits: dict[Partition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Sequence[str], rows: Mapping[Partition, int], size: int, file_bytes: int) -> PartitionLayout:
        """`rows`: about how many each partition has. `size`: bytes of all, `file_bytes`: of a file."""
        layout, packed = cls(columns), 0.0
        unit, total = max(file_bytes, size // SHARES), max(sum(rows.values()), 1)
        for partition, count in sorted(rows.items(), key=lambda each: each[1]):
            part = count * size / total
            bits = 0 if part <= unit else int(np.ceil(np.log2(part / unit)))
            if bits or packed + part > unit or not layout.shares:
                layout.shares, packed = layout.shares + (1 << bits), 0.0
            packed += part
            layout._first[partition], layout._bits[partition] = layout.shares - (1 << bits), bits
        return layout

    def share_of(self, rows: pa.Table) -> np.ndarray:
        """The share of each row."""
        numbered = rows.append_column("", pa.array(np.arange(rows.num_rows)))
        shares = np.zeros(rows.num_rows, np.int64)
        for partition, of in groups(numbered, self.columns):
            at = of.column("").to_numpy()
            shares[at] = self._first[partition] + first_bits(hashes(of.drop_columns([""])), self._bits[partition])
        return shares

    def prefix(self, partition: Partition, share: int) -> str:
        """The first bits of the hashes of the partition's rows in the share."""
        bits = self._bits[partition]
        return format(share - self._first[partition], f"0{bits}b") if bits else ""
