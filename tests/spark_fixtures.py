"""One Spark session for all tests of a process: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark_replica.spark.session import SparkHolder, start_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small local session with the replica's settings; a task that fails is tried once more."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    holder = SparkHolder(lambda: start_spark("local[2, 2]", "1g", scratch))
    yield holder.get()
    holder.stop()
