"""One small Spark session for all of the planner's tests."""

from __future__ import annotations

import pytest

from tidemark_planner.catalyst import Catalyst


@pytest.fixture(scope="session")
def catalyst() -> Catalyst:
    return Catalyst.start()
