"""A scripted gateway, and a session that knows the data source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.scripted_gateway import History, started
from tidemark.spark import register


@pytest.fixture
def gateway() -> Iterator[tuple[History, dict[str, str]]]:
    """And the options that name it."""
    history = History()
    server, port = started(history)
    yield history, {"server": f"127.0.0.1:{port}", "token": "secret", "namespace": "ns"}
    server.stop(None).wait()


@pytest.fixture
def session(spark: Any) -> Any:
    register(spark)
    return spark
