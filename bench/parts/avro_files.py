"""Avro files beside Parquet, JSON and Avro by fastavro: the same rows, from a folder to staged files.

`avro_files_per_core_s`: rows of Avro (without compression) for each second of CPU. `avro_files_json_ratio`: that of
Avro as a multiple of JSON's; `avro_files_parquet_ratio`: of Parquet's; `avro_files_fastavro_ratio`: of fastavro's,
which makes a dict of each row, and Arrow of the dicts, and writes the same Parquet files. `avro_large_blocks_ratio`:
of files with blocks of 4 MB, as a share of those with blocks of 16 KB.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.harness.answers import WrongAnswer
from bench.harness.clock import measured
from bench.harness.context import progress
from bench.parts.kafka_source import COLUMNS, SCHEMA, record_of
from tidemark_persist import write_staged
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.folder import Folder
from tidemark_replica.storage.files.reading import FileStaging, StageRows
from tidemark_replica.values.arrow_types import arrow_schema

TURNS = 3
FILES = 2
LARGE_BLOCK = 4 << 20
BATCH_ROWS = 65_536


def figures(session: SparkSession, rows: int) -> dict[str, Any]:
    """The figures above."""
    with tempfile.TemporaryDirectory() as folder:
        progress(f"{rows} rows in files")
        root = Path(folder)
        values = [record_of(i) for i in range(rows)]
        for part in range(FILES):
            _write(root, f"{part}", values[part::FILES])
        sides: dict[str, Callable[[], int]] = {
            format: lambda format=format: _staged(session, root, format)  # type: ignore[misc]
            for format in ("avro", "large", "json", "parquet")
        }
        sides["fastavro"] = lambda: sum(_by_fastavro(root, file) for file in (root / "avro").iterdir())
        cpu: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(TURNS + 1):
            for side, work in sides.items():
                cost, found = measured(work)
                if found != rows:
                    raise WrongAnswer(f"{side} staged {found} rows of {rows}")
                cpu[side].append(cost.cpu / 1000)
    least = {side: min(costs[1:]) for side, costs in cpu.items()}
    return {
        "avro_files_per_core_s": round(rows / least["avro"]),
        "avro_files_json_ratio": round(least["json"] / least["avro"], 2),
        "avro_files_parquet_ratio": round(least["parquet"] / least["avro"], 2),
        "avro_files_fastavro_ratio": round(least["fastavro"] / least["avro"], 2),
        "avro_large_blocks_ratio": round(least["avro"] / least["large"], 2),
    }


def _write(root: Path, name: str, values: list[dict[str, Any]]) -> None:
    schema = fastavro.parse_schema(SCHEMA)
    for format in ("avro", "large", "json", "parquet", "staged"):
        (root / format).mkdir(exist_ok=True)
    for format, size in (("avro", 16_000), ("large", LARGE_BLOCK)):
        with (root / format / name).open("wb") as file:
            fastavro.writer(file, schema, values, sync_interval=size)
    (root / "json" / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    pq.write_table(pa.Table.from_pylist(values, arrow_schema(COLUMNS)), root / "parquet" / name)


def _staged(session: SparkSession, root: Path, format: str) -> int:
    folder = Folder(str(root / format))
    table = FilesTable("t", "avro" if format == "large" else format, folder.directory, columns=COLUMNS)
    function = StageRows(COLUMNS, Time(1000), str(root / "staged"), None, set_aside=False)
    done = FileStaging(session, table, folder, function).stage(folder.list("*").files)
    done.remove(function)
    return sum(good for good, _ in done.counts.values())


def _by_fastavro(root: Path, path: Path) -> int:
    count, schema = 0, arrow_schema(COLUMNS)
    stamp = StageRows(COLUMNS, Time(1000), str(root / "staged"), None, set_aside=False)
    with path.open("rb") as file:
        reader = fastavro.reader(file)

        def batches() -> Any:
            nonlocal count
            while some := list(islice(reader, BATCH_ROWS)):
                count += len(some)
                yield stamp.stamped(pa.RecordBatch.from_pylist(some, schema))

        write_staged(str(root / "staged"), batches(), schema=schema)
    return count
