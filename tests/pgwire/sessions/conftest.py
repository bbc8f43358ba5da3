"""A real PostgreSQL beside which values of the wire are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres import running


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    """A connection to an empty database."""
    with running() as server:
        options = {"host": str(server.folder), "port": server.port, "user": "test", "dbname": "postgres"}
        with psycopg.connect(**options, autocommit=True) as connection:
            yield connection
