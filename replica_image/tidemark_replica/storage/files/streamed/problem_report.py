"""Problems of whole files that tasks of a job find while they read: an accumulator from the tasks to the driver.

Tasks that Spark repeats report twice; a report is a mapping, so that changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession

from tidemark_replica.storage.avro.container import NotAvro
from tidemark_replica.storage.files.listing import FileChanged
from tidemark_replica.storage.files.streamed.compression import ArchiveUnreadable
from tidemark_replica.storage.files.streamed.lines import NotText

LOG = logging.getLogger(__name__)
_Problems = dict[str, tuple[str, str]]


class Mismatch(Exception):
    """The header or the schema of the file is not that of the table."""


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

    def _add(self, file: str, code: str, text: str = "") -> None:
        self._found.add({file: (code, text)})

    @contextmanager
    def of(self, file: str) -> Iterator[None]:
        """Reports the problems of the file that end the block. Called in a task. Failures of the store are raised."""
        try:
            yield
        except FileNotFoundError:
            self._add(file, "FILE_MISSING")
        except FileChanged:
            self._add(file, "FILE_CHANGED")
        except Mismatch as error:
            self._add(file, "SCHEMA_MISMATCH", str(error))
        except (ArchiveUnreadable, NotText, NotAvro, pa.ArrowException) as error:
            self._add(file, "FILE_UNREADABLE", str(error))
        except OSError as error:
            # Arrow raises errors without a number for damaged pages
            if error.errno is not None:
                raise
            self._add(file, "FILE_UNREADABLE", str(error))

    def take(self) -> dict[str, str]:
        """The codes by the name of the file, once the job is done; the report takes no more."""
        found = self._found.value
        # the registry would keep one entry for each job
        _accumulatorRegistry.pop(self._found.aid, None)
        for file, (code, text) in found.items():
            LOG.warning("file %s: %s%s", file, code, f" ({text})" if text else "")
        return {file: code for file, (code, _) in found.items()}
