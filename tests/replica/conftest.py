"""One replica process with Spark for all tests that only speak to it, and dataflows without Spark's jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.oracle.variants.in_process import without_jobs
from tests.ports import free_port
from tests.replica.one_view import OneView
from tests.replica.process import ReplicaProcess, ScriptedClient, epochs
from tests.replica.tables import Table
from tests.replica.two_dataflows import TwoDataflows
from tidemark_protocol.messages.commands import Command, InstanceConfig

EPOCHS = epochs()


@pytest.fixture(scope="session")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def spark_replica(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[ReplicaProcess]:
    home, counts = tmp_path_factory.mktemp("replica"), ("--metrics-port", str(metrics_port))
    process = ReplicaProcess(home, "--cores", "2", "--driver-memory", "1g", *counts)
    yield process
    process.close()


@pytest.fixture
def connect(spark_replica: ReplicaProcess) -> Iterator[Callable[..., ScriptedClient]]:
    """A new client that says these commands in its initialization."""
    clients = []

    def connect(*commands: Command) -> ScriptedClient:
        client = ScriptedClient(spark_replica.address)
        clients.append(client)
        client.greet(next(EPOCHS), InstanceConfig("default", str(spark_replica.home)), *commands)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path, "t")
    made.append(10, ((1, "a"), 3, 1))
    return made


@pytest.fixture
def two(tmp_path: Path, table: Table, request: pytest.FixtureRequest) -> Iterator[TwoDataflows]:
    """The parameter: what its loser is called, if that has one time only."""
    with without_jobs():
        made = TwoDataflows(tmp_path, table, getattr(request, "param", None))
        yield made
        made.end()


@pytest.fixture
def views() -> Iterator[list[OneView]]:
    """Empty; those that a test adds are ended."""
    made: list[OneView] = []
    with without_jobs():
        yield made
        for view in made:
            view.end()
