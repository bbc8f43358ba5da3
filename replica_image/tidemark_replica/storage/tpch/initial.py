"""The initial data: tpchgen-cli's tables of a scale factor, kept in scratch, or in a folder that replicas share.

tpchgen-cli is a program in a Python package. The same version and scale factor give the same rows everywhere, so a
replica that takes over an ingestion uses what the one before it has made: to make it again takes seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.tpch.random import Ints
from tidemark_replica.storage.tpch.tables import TABLES
from tidemark_replica.storage.tpch.transactions import Population
from tidemark_replica.values.arrow_types import arrow_schema

_TIMEOUT_S = 1800
_ROWS = 65_536
ORDERS_AHEAD = 4096
"""The orders that are read at once, with their lines: a few megabytes."""
_KEYS = (("orders", "o_orderkey"), ("lineitem", "l_orderkey"))
SHARED_FOLDER = "TIDEMARK_SOURCE_DATA"
"""Environment variable with the folder that the replicas of a machine share; the local orchestrator sets it."""
_UNFINISHED = ".tpch-"
MAX_SCALE_FACTOR = Decimal(100)


def _program() -> str:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise SourceUnusable("tpchgen-cli is not installed beside this Python; install tidemark[replica]")
    return found


def generator_version() -> str:
    """The name and version of the generator."""
    output = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True, timeout=60)
    return output.stdout.strip()


def check_scale_factor(text: str) -> str:
    """The scale factor in one canonical spelling; raises SourceUnusable."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise SourceUnusable(f"scaleFactor {text!r} is not a number") from None
    if not Decimal("0.001") <= value <= MAX_SCALE_FACTOR:
        raise SourceUnusable(f"scaleFactor {text} is outside 0.001 to {MAX_SCALE_FACTOR}")
    return format(value.normalize(), "f")


def data_folder(scratch: Path) -> Path:
    """The folder that replicas share, or one in `scratch`."""
    shared = os.environ.get(SHARED_FOLDER)
    return Path(shared) if shared else scratch / "sources"


class InitialData:
    """The eight tables as Parquet files in a folder of `cache`, generated at first use, with the catalogue's types."""

    def __init__(self, cache: Path, scale_factor: str) -> None:
        self._scale_factor = check_scale_factor(scale_factor)
        self._ahead: range | None = None
        self._folder = cache / f"tpch-{self._scale_factor}-{generator_version().replace(' ', '-')}"

    def path(self, table: str) -> Path:
        self._make()
        return self._folder / f"{table}.parquet"

    def rows(self, table: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path(table)) as file:
            yield from file.iter_batches(_ROWS)

    @cached_property
    def population(self) -> Population:
        counts = {t: pq.read_metadata(self.path(t)).num_rows for t in ("customer", "part", "supplier")}
        last_key = int(self._order_keys[-1])
        return Population(len(self._order_keys), counts["customer"], counts["part"], counts["supplier"], last_key + 1)

    def orders_at(self, positions: range) -> tuple[pa.Table, pa.Table]:
        """The orders at these positions in order of their key, and their lines. A tick asks for the next few, so more
        of them are read at once: a file's smallest part that can be read has 65,536 rows."""
        first, last = self._keys_of(positions)
        there = self._ahead
        if there is None or not (there.start <= positions.start and positions.stop <= there.stop):
            ahead = range(positions.start, max(positions.stop, positions.start + ORDERS_AHEAD))
            self._orders, self._lines = (self._among(*of, *self._keys_of(ahead)) for of in _KEYS)
            self._ahead = ahead
        return _rows_between(self._orders, first, last), _rows_between(self._lines, first, last)

    def _keys_of(self, positions: range) -> tuple[int, int]:
        """The keys of the first and the last order."""
        keys = self._order_keys[positions.start : positions.stop]
        return (int(keys[0]), int(keys[-1])) if len(keys) else (0, -1)

    @cached_property
    def _order_keys(self) -> Ints:
        keys = pq.read_table(self.path("orders"), columns=["o_orderkey"]).column(0)
        return np.sort(keys.to_numpy())

    def _among(self, table: str, key: str, first: int, last: int) -> pa.Table:
        """Rows whose key is in [first, last]; row groups without such keys are not read."""
        return pq.read_table(self.path(table), filters=[(key, ">=", first), (key, "<=", last)])

    def _make(self) -> None:
        """Writes all files or none: a folder with its final name is complete."""
        if self._folder.exists():
            return
        self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_abandoned(self._folder.parent)
        with tempfile.TemporaryDirectory(dir=self._folder.parent, prefix=_UNFINISHED) as unfinished:
            made, ours = Path(unfinished) / "made", Path(unfinished) / "data"
            command = [_program(), "parquet", "-s", self._scale_factor, "--output-dir", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            if done.returncode != 0:
                raise SourceUnusable(f"tpchgen-cli failed ({done.returncode}): {done.stderr.strip()[-500:]}")
            ours.mkdir()
            for table in TABLES:
                _convert(made / f"{table}.parquet", ours / f"{table}.parquet", table)
            try:
                os.rename(ours, self._folder)
            except OSError:
                if not self._folder.exists():  # another ingester made the same data meanwhile
                    raise


def _rows_between(rows: pa.Table, first: int, last: int) -> pa.Table:
    """The rows whose key, the first column, is in [first, last]."""
    keys = rows.column(0)
    return rows.filter(pc.and_(pc.greater_equal(keys, first), pc.less_equal(keys, last)))


def _remove_abandoned(parent: Path) -> None:
    """Remove what replicas that died left unfinished: folders that are older than the generator may run, twice over."""
    for folder in parent.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - folder.stat().st_mtime > 2 * _TIMEOUT_S:
                shutil.rmtree(folder, ignore_errors=True)


def _convert(made: Path, ours: Path, table: str) -> None:
    """Casts the table to the catalogue's types: tpchgen-cli writes string views, which few Arrow functions support."""
    schema = arrow_schema(TABLES[table].columns)
    with pq.ParquetFile(made) as file, pq.ParquetWriter(ours, schema, compression="zstd") as writer:
        for batch in file.iter_batches(_ROWS):
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
