"""The reports to a new client of steps that fail: all that still holds, each time, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.oracle.variants.in_process import without_jobs
from tests.replica.plans import copies
from tests.replica.tables import Table
from tests.replica.worker_loop import Loop
from tests.stored_files import rows_away
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Failure, FailureKind, Frontiers
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.spark.session import SparkHolder

INDEX = GlobalId("i")


class Replica:
    """The dataflows of a replica, with their drivers, without Spark's jobs."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local"))
        self.renderer = Renderer(SparkHolder(lambda: session), folder / "scratch")
        context = self.loop.driver_context(self.renderer, session, folder)
        self.dataflows = InstalledDataflows(
            lambda of, refused: DataflowDriver(of, replace(context, respond=self.dataflows.send), refused),
            self.loop.said.append,
            lambda id: Frontier.empty(),
        )

    def run_until(self, holds: Callable[[], object]) -> None:
        self.loop.run_until(holds, self.dataflows.maintain)

    def failures(self) -> list[Failure]:
        return [each for each in self.loop.said if isinstance(each, Failure)]

    def greeted(self, *wanted: DataflowDescription) -> list[Failure]:
        """The Failures that the replica sends at once to a new client that wants these dataflows."""
        self.loop.said.clear()
        self.dataflows.reconcile(wanted, {})
        return self.failures()

    def end(self) -> None:
        self.dataflows.shutdown()
        self.loop.run_until(lambda: not self.dataflows.are_stepping)
        self.loop.jobs.shutdown()
        self.renderer.close()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with without_jobs():
        made = Replica(tmp_path)
        yield made
        made.end()


def test_a_step_that_fails_is_told_to_each_client_until_it_succeeds(
    replica: Replica, table: Table, tmp_path: Path
) -> None:
    """In the words and with the number of the last attempt, and before the first frontiers."""
    plan = copies("d", 6, source=table.metadata, index=INDEX)
    with rows_away(Path(table.metadata.location), tmp_path / "aside"):
        replica.dataflows.create(plan)
        replica.dataflows.schedule(INDEX)
        replica.run_until(lambda: len(replica.failures()) == 2)
        first, last = replica.failures()
        assert (last.kind, first.attempts, last.attempts) == (FailureKind.STEP, 1, 2)
        assert not first.repeated
        assert not last.repeated

        for _ in range(2):
            assert replica.greeted(plan) == [replace(last, repeated=True)]
            replica.dataflows.maintain()
            assert Frontiers(INDEX, *[Frontier.at(6)] * 3) in replica.loop.said
            assert len(replica.failures()) == 1

    replica.dataflows.schedule(INDEX)
    replica.run_until(lambda: all(dataflow.hydrated for dataflow in replica.dataflows))
    assert replica.greeted(plan) == []


def test_a_step_that_fails_is_not_told_to_a_client_that_wants_another_dataflow(
    replica: Replica, table: Table, tmp_path: Path
) -> None:
    """It goes with the client's reconciliation, and the one in its place has not been tried."""
    plan = copies("d", 6, source=table.metadata, index=INDEX)
    with rows_away(Path(table.metadata.location), tmp_path / "aside"):
        replica.dataflows.create(plan)
        replica.dataflows.schedule(INDEX)
        replica.run_until(replica.failures)

        other = copies("another", 7, source=table.metadata, index=INDEX, until=9)
        assert replica.greeted(other) == []
        replica.dataflows.create(other)
        replica.dataflows.maintain()
        assert replica.failures() == []
