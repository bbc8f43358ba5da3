"""The planner and one Spark session for all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(spark: Any) -> Oracle:
    return Oracle(spark)
