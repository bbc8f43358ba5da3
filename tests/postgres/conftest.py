"""One PostgreSQL server for the tests of a module, a database of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import Database, create_database, drop_slots, server_with_replication

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with server_with_replication() as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """A database with the tables of `databases.SCHEMA`."""
    name = f"d{next(_NUMBERS)}"
    create_database(server, name)
    yield Database(server, name)
    drop_slots(server)
