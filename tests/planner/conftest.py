"""The planner's Catalyst, in a session of its own on the JVM that all tests of the process share."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_planner.catalyst.analyser import Catalyst


@pytest.fixture(scope="session")
def catalyst(spark: Any) -> Catalyst:
    return Catalyst.start()
