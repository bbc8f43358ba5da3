"""The oracle, once per process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.oracle.oracle import Oracle
from tidemark_replica.step_worker.pool import StepWorkers


@pytest.fixture(scope="session")
def workers() -> Iterator[StepWorkers]:
    """One process for the small steps of all cases."""
    made = StepWorkers()
    yield made
    made.close()


@pytest.fixture(scope="session")
def oracle(spark: Any, workers: StepWorkers) -> Oracle:
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # references that raise are expected
    return Oracle(spark, workers)
