"""Two real replicas behind toxiproxy, a controller for each test, and data that they follow."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.failures.fleet import Fleet
from tests.e2e.failures.network_faults import Bridge, Proxy, Toxiproxy, toxiproxy
from tests.replica.conversations import unique
from tests.replica.plans import copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, wait_until
from tests.replica.tables import Table, persisted
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.plan.dataflow import DataflowDescription

TERMS = itertools.count(1)
STEP = 10


@dataclass
class Remote:
    """A replica, and the way to it."""

    name: str
    process: ReplicaProcess
    proxy: Proxy

    def describe(self) -> Description:
        """Asked at its own socket, past every fault."""
        client = ScriptedClient(self.process.address)
        try:
            return client.describe()
        finally:
            client.close()

    def pause(self) -> None:
        os.kill(self.process.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.process.pid, signal.SIGCONT)

    def mend(self) -> None:
        """Restore the network, whatever a failed test has left behind."""
        if self.process.process.poll() is None:
            self.resume()
        else:
            self.process.start()
        self.proxy.heal()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def network(home: Path) -> Iterator[Toxiproxy]:
    with toxiproxy(home) as running:
        yield running


def remote(home: Path, network: Toxiproxy, name: str, environ: dict[str, str] | None = None) -> Iterator[Remote]:
    (home / name).mkdir()
    process = ReplicaProcess(home / name, "--name", name, "--cores", "2", "--driver-memory", "768m", environ=environ)
    bridge = Bridge(process.address.removeprefix("unix://"))
    made = Remote(name, process, Proxy(network, name, bridge.port))
    yield made
    if process.process.poll() is None:
        made.resume()
    bridge.close()
    process.close()


@pytest.fixture(scope="module")
def r1_of_module(home: Path, network: Toxiproxy) -> Iterator[Remote]:
    yield from remote(home, network, "r1")


@pytest.fixture(scope="module")
def r2_of_module(home: Path, network: Toxiproxy) -> Iterator[Remote]:
    yield from remote(home, network, "r2")


@pytest.fixture
def r1(r1_of_module: Remote) -> Remote:
    r1_of_module.mend()
    return r1_of_module


@pytest.fixture
def r2(r2_of_module: Remote) -> Remote:
    r2_of_module.mend()
    return r2_of_module


@pytest.fixture
def fleet(home: Path) -> Iterator[Fleet]:
    fleet = Fleet(InstanceConfig("default", str(home.parent)), next(TERMS))
    yield fleet
    fleet.close()


class Data:
    """A table, an index and a view over it, and time that passes."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.table = fleet, Table(folder, unique("t"))
        self.table.append(STEP, ((1, "a"), 3, 1))
        self.view = shard(unique("v"), str(folder))
        self.dataflow = copies(unique("d"), STEP - 1, source=self.table.metadata, index=unique("i"), view=self.view)
        self.index, self.written = self.dataflow.export_ids
        fleet.create(self.dataflow, self.table.metadata)

    def tick(self) -> int:
        """A row comes; the time up to which there is data now."""
        upper = self.table.upper + STEP
        self.table.append(upper, ((upper, "row"), upper - 1, 1))
        return upper

    def another(self, name: str) -> DataflowDescription:
        """A dataflow more over the same table."""
        made = copies(unique(name), self.table.upper - 1, source=self.table.metadata, index=unique("i"))
        self.fleet.create(made)
        return made

    def follows(self, *remotes: Remote) -> None:
        """These replicas have processed everything, the view is written, and what is read is right."""
        upper = self.table.upper
        for each in remotes:
            wait_until(lambda each=each: self.fleet.reached(self.index, each.name) >= upper)
        wait_until(lambda: self.fleet.write(self.written) >= upper)
        rows = sorted(self.table.at(upper - 1), key=repr)
        assert self.fleet.peek(self.index, upper - 1) == rows
        assert persisted(self.view.location, upper - 1) == self.table.at(upper - 1)
