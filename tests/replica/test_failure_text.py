"""Texts of unforeseen failures: conditions and Events have their type and place, and no value."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from tests.replica.worker_loop import Loop
from tests.storage.ingestion_samples import description, tpch_tables
from tidemark_persist import StorageError, shard_writers
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import TpchSource
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.spark.session import SparkHolder
from tidemark_replica.values.failure_text import log_text, public_spark_text, public_text, public_text_with_type

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    "3.0 (TID 7) (10.0.0.7 executor 1): "
)
FRAMES = """Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 9, in main
    process()
  File "/opt/code/tidemark_replica/storage/files/reading.py", line 120, in __call__
    rows = self._rows(batches, bad)
           ^^^^^^^^^^^^^^^^^^^^^^^^
"""
JVM = "\n\n\tat org.apache.spark.api.python.BasePythonRunner.x(y.scala:1)\n\tat z"
SEE = "; its text is in the replica's log"


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            "org.apache.spark.api.python.PythonException: " + FRAMES + "pyarrow.lib.ArrowInvalid: no: 'alice'" + JVM,
            "ArrowInvalid: unexpected error in tidemark_replica/storage/files/reading.py, line 120" + SEE,
        ),
        (
            "org.apache.spark.api.python.PythonException: " + FRAMES + "ValueError: a row:\nalice: 42\nbob: 7" + JVM,
            "ValueError: unexpected error in tidemark_replica/storage/files/reading.py, line 120" + SEE,
        ),
        (
            "org.apache.spark.api.python.PythonException: "
            + FRAMES
            + "OSError: [Errno 28] No space left on device: '/x/alice'"
            + JVM,
            "OSError: No space left on device in tidemark_replica/storage/files/reading.py, line 120" + SEE,
        ),
        (
            "org.apache.spark.api.python.PythonException: "
            + FRAMES
            + "KeyError: 'alice'\n\nDuring handling of the above exception, another exception occurred:\n\n"
            + FRAMES
            + "tidemark_persist.errors.StorageError: the disk is full"
            + JVM,
            "StorageError: the disk is full",
        ),
        (
            "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'alice' of the type ..." + JVM,
            "SparkNumberFormatException: CAST_INVALID_INPUT" + SEE,
        ),
        (
            "java.lang.IllegalStateException: no key (1): org.example.Alice" + JVM,
            "IllegalStateException: unexpected error" + SEE,
        ),
        ("alice", "Py4JJavaError: unexpected error" + SEE),
        (
            "ExecutorLostFailure (executor 1 exited) Reason: The executor with id 1 exited with exit code 52",
            "ExecutorLostFailure (executor 1 exited) Reason: The executor with id 1 exited with exit code 52",
        ),
    ],
)
@pytest.mark.parametrize("before", [LOST, "An error occurred while calling o7.count.\n: " + LOST])
def test_a_failure_of_spark_is_reported_by_type_code_and_place(says: str, message: str, before: str) -> None:
    """And our own words, which have no data; an executor's end is Spark's business, and told in its words."""
    assert public_spark_text(before + says, "Py4JJavaError") == message


def test_ours_are_told_as_they_are() -> None:
    """They were written to be read."""
    assert public_text(StepFailed("step s failed: give the replica more scratch")).endswith("more scratch")
    assert public_text_with_type(StorageError("s3://b/t: DENIED")) == "StorageError: s3://b/t: DENIED"


def no_such_number(*_: Any, **__: Any) -> NoReturn:
    pa.array(["alice"]).cast(pa.int64())
    raise AssertionError("Arrow takes it for a number")


def test_a_source_that_meets_a_value_does_not_tell_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Its status goes into a condition; the log of the replica has the value."""
    monkeypatch.setattr(shard_writers, "create_or_open", no_such_number)
    loop = Loop()
    ingestions = IngestionCommands(SparkHolder(object), loop.jobs, tmp_path / "cache")
    of = description(tmp_path, TpchSource("0.001", 100, 7), tpch_tables("nation"))
    ingestions.run(RunIngestion(of, WriterTerm(1), Time(int(time.time() * 1000)), 30_000))
    reported: list[str] = []

    def failed() -> bool:
        reported.extend(s.message for s in ingestions.poll() if isinstance(s, IngestionStatus) and s.state == "failed")
        return bool(reported)

    with caplog.at_level(logging.WARNING):
        loop.run_until(failed)
    ingestions.shutdown()
    assert reported[0].startswith("ArrowInvalid: unexpected error in tidemark_")
    assert "alice" not in reported[0]
    assert "'alice'" in caplog.text


@pytest.mark.spark
def test_a_value_that_spark_quotes_is_not_told(spark: Any) -> None:
    """By its own error, by one of a Python worker, and as a step's job says it, past PySpark's translation."""
    wrong = spark.sql("SELECT CAST(a AS INT) AS b FROM VALUES ('alice') AS v(a) WHERE rand() >= 0")
    by_arrow = spark.range(1).mapInArrow(_to_number, "n long")
    for run, reported in [
        (wrong.collect, "CAST_INVALID_INPUT"),
        (lambda: wrong._jdf.toJavaRDD().count(), "CAST_INVALID_INPUT"),
        (by_arrow.collect, "ArrowInvalid: unexpected error"),
        (lambda: by_arrow._jdf.toJavaRDD().count(), "ArrowInvalid: unexpected error"),
    ]:
        with pytest.raises(Exception) as caught:
            run()
        assert "alice" in log_text(caught.value)
        assert "alice" not in public_text(caught.value)
        assert reported in public_text(caught.value)


def _to_number(batches: Any) -> Any:
    for _ in batches:
        yield pa.record_batch({"n": pa.array(["alice"]).cast(pa.int64())})
