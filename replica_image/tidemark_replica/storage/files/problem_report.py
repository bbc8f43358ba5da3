"""Problems of whole files that tasks of a job find while they read: an accumulator from the tasks to the driver.

Tasks that Spark repeats report twice; a report is a mapping, so that changes nothing.
"""

from __future__ import annotations

import logging

from pyspark.accumulators import AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)
_Problems = dict[str, tuple[str, str]]


class _Union(AccumulatorParam[_Problems]):  # type: ignore[misc]
    def zero(self, value: _Problems) -> _Problems:
        return {}

    def addInPlace(self, value1: _Problems, value2: _Problems) -> _Problems:
        value1.update(value2)
        return value1


class ProblemReport:
    """The problems of one job's files."""

    def __init__(self, session: SparkSession) -> None:
        self._found = session.sparkContext.accumulator({}, _Union())

    def add(self, file: str, code: str, text: str = "") -> None:
        """Called in a task. `code`: one of FILE_CODES. `text`: for the log."""
        self._found.add({file: (code, text)})

    def take(self) -> dict[str, str]:
        """The codes by the name of the file, once the job is done; the report takes no more."""
        found = self._found.value
        # the registry would keep one entry for each job
        _accumulatorRegistry.pop(self._found.aid, None)
        for file, (code, text) in found.items():
            LOG.warning("file %s: %s%s", file, code, f" ({text})" if text else "")
        return {file: code for file, (code, _) in found.items()}
