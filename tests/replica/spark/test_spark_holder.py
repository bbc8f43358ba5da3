"""A Spark that does not start: tried again ever more rarely, and said once."""

from __future__ import annotations

import logging

import pytest

from tidemark_replica.errors import SparkNotStarted
from tidemark_replica.spark.session import SparkHolder


class Starting:
    """The start of a Spark that may not make executors at first, by a clock of the test's."""

    def __init__(self) -> None:
        self.now, self.starts = 0.0, 0
        self.failure: str | None = "403 Forbidden"
        self.holder = SparkHolder(self.start, lambda: self.now)

    def start(self) -> object:
        self.starts += 1
        if self.failure is not None:
            raise OSError(self.failure)
        return self


def test_many_requests_for_a_failing_spark_are_one_start(caplog: pytest.LogCaptureFixture) -> None:
    """Each of them hears why; the log does once, until it is for another reason."""
    caplog.set_level(logging.WARNING)
    spark = Starting()
    for _ in range(100):
        with pytest.raises(SparkNotStarted, match="Spark does not start: 403 Forbidden"):
            spark.holder.get()
    assert spark.starts == 1

    for failure in ("403 Forbidden", "timed out", "timed out"):
        spark.now, spark.failure = spark.now + 60.0, failure
        with pytest.raises(SparkNotStarted, match=failure):
            spark.holder.get()
    assert spark.starts == 4
    assert [record.getMessage() for record in caplog.records] == [
        "Spark does not start: 403 Forbidden",
        "Spark does not start: timed out",
    ]


def test_once_it_starts_it_is_there() -> None:
    """After the pause, for all; it is not started again."""
    spark = Starting()
    with pytest.raises(SparkNotStarted):
        spark.holder.get()
    spark.now, spark.failure = 60.0, None
    assert spark.holder.get() is spark.holder.get() is spark
    assert spark.starts == 2
