"""Kernels run in Spark's Python workers: they are importable, and the garbage collector ignores what they import."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.arrangement.histories import plain
from tests.arrangement.reduce import spark_reduce
from tidemark_replica.kernels.worker import freeze_imports_in_spark_worker


def test_only_sparks_workers_are_frozen() -> None:
    """A driver or a test that imports the kernels keeps its garbage collector as it is."""
    before = gc.get_freeze_count()
    assert freeze_imports_in_spark_worker(["python", "-m", "tidemark_replica"]) is False
    assert gc.get_freeze_count() == before


def test_a_worker_is_frozen_at_import() -> None:
    """In a process started as Spark starts its daemon, importing the kernels freezes what is imported."""
    code = "import gc, tidemark_replica.kernels; print(gc.get_freeze_count())"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    worker = subprocess.run([sys.executable, "-c", code, "pyspark.worker"], capture_output=True, text=True, check=True)
    assert int(plain.stdout) == 0
    assert int(worker.stdout) > 10_000


@pytest.mark.broad
@pytest.mark.spark
def test_agree_a_reduce_in_sparks_workers_and_sparks_own(spark: Any, tmp_path: Path) -> None:
    """A reduce inside mapInArrow: frozen, its batches written, its results those of Spark's own aggregation."""
    frame = spark.createDataFrame(spark_reduce.inputs())
    frame.createOrReplaceTempView("t")
    expected = spark.sql(spark_reduce.SQL).toArrow()

    found, frozen = spark_reduce.run_in_workers(frame, tmp_path)

    assert frozen > 10_000
    assert found.schema.types == expected.schema.types
    assert by_key(found) == by_key(expected)


def by_key(table: pa.Table) -> dict:
    """{key: the aggregates}, with NaN equal to itself."""
    rows = [tuple(map(plain, row.values())) for row in table.to_pylist()]
    return {key: aggregates for key, *aggregates in rows}
