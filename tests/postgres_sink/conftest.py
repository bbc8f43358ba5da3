"""One PostgreSQL server for the tests of a module, an empty database of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.dialects.postgres import Postgres, running
from tests.postgres.databases import Database, create_database

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running() as started:
        yield started


@pytest.fixture
def database(server: Postgres) -> Database:
    name = f"d{next(_NUMBERS)}"
    create_database(server, name, "")
    return Database(server, name)
