"""The oracle, once per process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(spark: Any) -> Oracle:
    return Oracle(spark)
