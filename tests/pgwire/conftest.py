"""One server of the protocol for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pgwire.served import ONE, Served, served
from tidemark_pgwire.catalogue import children


@pytest.fixture(scope="module", autouse=True)
def children_end() -> Iterator[None]:
    yield
    children.end_all()


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("pgwire")) as made:
        yield made


@pytest.fixture
def server(module_server: Served) -> Served:
    """Every statement is answered by the rows 1, 2, 3 unless the test says otherwise."""
    module_server.says(lambda sql, dialect: ONE)
    return module_server
