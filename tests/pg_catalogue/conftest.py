"""A PostgreSQL with the samples' relations, one for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dialects.postgres import Postgres
from tests.pg_catalogue.samples import Oracle, oracle
from tidemark_pgwire.catalogue import children


@pytest.fixture(scope="module", autouse=True)
def children_end() -> Iterator[None]:
    yield
    children.end_all()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Oracle, Postgres]]:
    with oracle() as found:
        yield found


@pytest.fixture(scope="module")
def compared(both: tuple[Oracle, Postgres]) -> Oracle:
    return both[0]
