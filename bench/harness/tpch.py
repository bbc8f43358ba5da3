"""TPC-H tables of a given size: a fact table of about n rows and a dimension of a tenth.

Lineitem at scale factor n / 2M, the first of three parts (n rows), and all of part (n / 10 rows), so that every line
finds its part. Types are TPC-H's own; free-text columns that no query reads are left out of the shards.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.cache import cache_folder, cached

ROWS_PER_SCALE_FACTOR = 2_000_000
MONEY = pa.decimal128(15, 2)
LINEITEM = pa.schema(
    {
        "l_orderkey": pa.int64(),
        "l_partkey": pa.int64(),
        "l_suppkey": pa.int64(),
        "l_linenumber": pa.int32(),
        "l_quantity": MONEY,
        "l_extendedprice": MONEY,
        "l_discount": MONEY,
        "l_tax": MONEY,
        "l_returnflag": pa.string(),
        "l_linestatus": pa.string(),
        "l_shipdate": pa.date32(),
    }
)
PART = pa.schema(
    {
        "p_partkey": pa.int64(),
        "p_mfgr": pa.string(),
        "p_brand": pa.string(),
        "p_type": pa.string(),
        "p_size": pa.int32(),
        "p_container": pa.string(),
        "p_retailprice": MONEY,
    }
)


@dataclass(frozen=True)
class Table:
    """A table in a Parquet file, of which `schema` are the columns in use."""

    file: Path
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """How many there are."""
        return int(pq.read_metadata(self.file).num_rows)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in the file's order, one batch after the other."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(c) for c in columns])
        with pq.ParquetFile(self.file) as file:
            for batch in file.iter_batches(batch_size=1 << 17, columns=wanted.names):
                yield batch.cast(wanted)


@dataclass(frozen=True)
class Tables:
    """The fact table and the dimension."""

    lineitem: Table
    part: Table


def tables(rows: int) -> Tables:
    """Tables with about so many lines; made the first time they are asked for."""
    folder = cached(cache_folder() / f"tpch-{rows}", lambda folder: _generate(folder, rows / ROWS_PER_SCALE_FACTOR))
    return Tables(
        Table(folder / "lineitem" / "lineitem.1.parquet", LINEITEM), Table(folder / "part" / "part.1.parquet", PART)
    )


def _generate(folder: Path, scale_factor: float) -> None:
    for table, parts in (("lineitem", 3), ("part", 1)):
        program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        sized = ["-s", f"{scale_factor:g}", "--parts", str(parts), "--part", "1"]
        subprocess.run([program, "parquet", "-q", "-T", table, *sized, "-o", folder], check=True)
