"""TPC-H tables of a given size, of the types that TPC-H says, by the number of lines: scale factor 1 has 6 million.

Free-text columns that no query reads are left out of the shards.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.cache import cache_folder, cached

LINES_PER_SCALE_FACTOR = 6_000_000
MONEY = pa.decimal128(15, 2)
SCHEMAS: Mapping[str, pa.Schema] = {
    "lineitem": pa.schema(
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
    ),
    "orders": pa.schema(
        {
            "o_orderkey": pa.int64(),
            "o_custkey": pa.int64(),
            "o_orderstatus": pa.string(),
            "o_totalprice": MONEY,
            "o_orderdate": pa.date32(),
            "o_orderpriority": pa.string(),
            "o_shippriority": pa.int32(),
        }
    ),
    "customer": pa.schema(
        {
            "c_custkey": pa.int64(),
            "c_name": pa.string(),
            "c_nationkey": pa.int64(),
            "c_acctbal": MONEY,
            "c_mktsegment": pa.string(),
        }
    ),
    "part": pa.schema(
        {
            "p_partkey": pa.int64(),
            "p_mfgr": pa.string(),
            "p_brand": pa.string(),
            "p_type": pa.string(),
            "p_size": pa.int32(),
            "p_container": pa.string(),
            "p_retailprice": MONEY,
        }
    ),
    "supplier": pa.schema(
        {"s_suppkey": pa.int64(), "s_name": pa.string(), "s_nationkey": pa.int64(), "s_acctbal": MONEY}
    ),
    "nation": pa.schema({"n_nationkey": pa.int64(), "n_name": pa.string(), "n_regionkey": pa.int64()}),
    "region": pa.schema({"r_regionkey": pa.int64(), "r_name": pa.string()}),
}


@dataclass(frozen=True)
class Table:
    """A table in a Parquet file, of which `schema` are the columns in use."""

    file: Path
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(pq.read_metadata(self.file).num_rows)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in the file's order, one batch after the other."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(c) for c in columns])
        with pq.ParquetFile(self.file) as file:
            for batch in file.iter_batches(batch_size=1 << 17, columns=wanted.names):
                yield batch.cast(wanted)


Tables = Mapping[str, Table]


def tables(lines: int, schemas: Mapping[str, pa.Schema] = SCHEMAS) -> Tables:
    """These tables, lineitem of about so many rows; made the first time they are asked for."""
    scale_factor = lines / LINES_PER_SCALE_FACTOR
    more = "".join(f"-{name}" for name in sorted(schemas.keys() - SCHEMAS.keys()))
    name = f"tpch{more}-sf{scale_factor:g}"
    folder = cached(cache_folder() / name, lambda folder: _generate(folder, scale_factor, schemas))
    return {name: Table(folder / f"{name}.parquet", schema) for name, schema in schemas.items()}


def label(lines: int) -> str:
    """1M, 10M, 100k: a size in figures' names."""
    if lines % 1_000_000 == 0:
        return f"{lines // 1_000_000}M"
    return f"{lines // 1000}k" if lines % 1000 == 0 else str(lines)


def _generate(folder: Path, scale_factor: float, names: Iterable[str]) -> None:
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    sized = ["-s", f"{scale_factor:g}", "-T", ",".join(names)]
    subprocess.run([program, "parquet", "-q", *sized, "-o", folder], check=True)
