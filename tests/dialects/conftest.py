"""The planner's Catalyst, and a catalogue with the table of statements.py."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_planner.catalyst.analyser import Catalyst


@pytest.fixture(scope="session")
def catalyst(spark: Any) -> Catalyst:
    return Catalyst.start()
