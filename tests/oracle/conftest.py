"""The oracle, once per process."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.oracle.oracle import Oracle
from tests.step_worker.shared import step_workers


@pytest.fixture(scope="session")
def oracle(spark: Any) -> Oracle:
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # references that raise are expected
    return Oracle(spark, step_workers())
