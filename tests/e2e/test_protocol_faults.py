"""Faults between a controller and real replicas, and in them: none stops the others, loses anything, or doubles it.

Two replica processes on Spark, the operator's controller, and toxiproxy between them.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.faults import Bridge, Proxy, Toxiproxy, toxiproxy
from tests.e2e.fleet import Fleet
from tests.replica.conversing import unique
from tests.replica.plans import copies, shard
from tests.replica.process import ReplicaProcess, ScriptedClient, wait_until
from tests.replica.tables import Table, persisted
from tidemark_protocol.commands import CreateDataflow, InstanceConfig
from tidemark_protocol.dataflow import DataflowDescription
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.responses import Description

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def network(home: Path) -> Iterator[Toxiproxy]:
    with toxiproxy(home) as running:
        yield running


def remote(home: Path, network: Toxiproxy, name: str) -> Iterator[Remote]:
    (home / name).mkdir()
    process = ReplicaProcess(home / name, "--name", name, "--cores", "2", "--driver-memory", "768m")
    bridge = Bridge(process.address.removeprefix("unix://"))
    yield Remote(name, process, network.proxy(name, bridge.port))
    bridge.close()
    process.close()


@pytest.fixture(scope="module")
def r1(home: Path, network: Toxiproxy) -> Iterator[Remote]:
    yield from remote(home, network, "r1")


@pytest.fixture(scope="module")
def r2(home: Path, network: Toxiproxy) -> Iterator[Remote]:
    yield from remote(home, network, "r2")


@pytest.fixture
def fleet(home: Path) -> Iterator[Fleet]:
    fleet = Fleet(InstanceConfig("default", str(home / "shards")), next(TERMS))
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


def test_crash_a_replica_that_is_cut_off_loses_nothing(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """Connections that end, again and again; the replica goes on meanwhile, and computes nothing anew."""
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)
    before = r1.describe()
    for _ in range(3):
        r1.proxy.cut()
        wait_until(lambda: fleet.online() == [])
        upper = data.tick()
        wait_until(lambda upper=upper: Frontier.at(upper) in {c.write for c in r1.describe().collections})
        r1.proxy.heal()
        data.follows(r1)

    after = r1.describe()
    assert (after.incarnation, after.hydrations) == (before.incarnation, before.hydrations)


Fault = Callable[[Remote], None]


def kill(remote: Remote) -> None:
    remote.process.kill()


def restart(remote: Remote) -> None:
    remote.process.start()


FAULTS: dict[str, tuple[Fault, Fault]] = {
    "killed": (kill, restart),
    "paused": (Remote.pause, Remote.resume),
    "blackholed, without a reset": (lambda r: r.proxy.swallow(), lambda r: r.proxy.heal()),
}


@pytest.mark.parametrize(("harm", "mend"), FAULTS.values(), ids=FAULTS.keys())
def test_crash_one_replica_is_isolated(
    fleet: Fleet, r1: Remote, r2: Remote, tmp_path: Path, harm: Fault, mend: Fault
) -> None:
    """The other answers, advances, is compacted, takes what is new and drops what is old; then the first is back."""
    for each in (r1, r2):
        fleet.attach(each.name, each.proxy.address)
    data = Data(fleet, tmp_path)
    old = data.another("old")
    data.follows(r1, r2)
    healthy = r1.describe()

    harm(r2)
    try:
        for _ in range(3):
            data.tick()
            data.follows(r1)
        new = data.another("new")
        wait_until(lambda: fleet.reached(new.export_ids[0], "r1") >= data.table.upper)
        fleet.drop(old.name)
        wait_until(lambda: fleet.since(data.index) > Frontier.at(STEP))
        wait_until(lambda: old.export_ids not in {d.export_ids for d in r1.describe().dataflows})
        since = {c.id: c.since for c in r1.describe().collections}
        assert since[data.index] > Frontier.at(STEP), "compaction reaches the healthy replica"
        wait_until(lambda: fleet.online() == ["r1"])
    finally:
        mend(r2)

    wait_until(lambda: fleet.online() == ["r1", "r2"])
    data.tick()
    data.follows(r1, r2)
    assert fleet.gone(old.name)
    assert {d.export_ids for d in r2.describe().dataflows} == {data.dataflow.export_ids, new.export_ids}
    after = r1.describe()
    assert (after.incarnation, after.hydrations) == (healthy.incarnation, healthy.hydrations + 1)


def test_crash_the_connection_breaks_while_it_is_reconciled(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """After so many bytes of each attempt, and meanwhile a dataflow is dropped: the rest is reused at the end."""
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    others = [data.another(f"other-{n}") for n in range(8)]
    for other in others:
        wait_until(lambda other=other: fleet.reached(other.export_ids[0], "r1") >= data.table.upper)
    data.follows(r1)
    before, epoch = r1.describe(), r1.describe().epoch
    assert epoch is not None

    r1.proxy.toxic("limit_data", "upstream", bytes=2_500)
    r1.proxy.cut()
    r1.proxy.join()
    greeted = wait_until(lambda: (e := r1.describe().epoch) is not None and e > epoch and e)
    fleet.drop(others[0].name)
    wait_until(lambda: (e := r1.describe().epoch) is not None and e > greeted)
    assert len(r1.describe().dataflows) == len(others) + 1, "what was not said to the end is not acted on"
    r1.proxy.heal()

    wait_until(lambda: len(r1.describe().dataflows) == len(others))
    data.tick()
    data.follows(r1)
    after = r1.describe()
    assert (after.incarnation, after.hydrations) == (before.incarnation, before.hydrations)
    wait_until(lambda: fleet.gone(others[0].name))


def test_what_was_reused_still_reports_its_end(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """Empty frontiers come for a dataflow that went on through a reconnect; else it would be waited for for ever."""
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)
    r1.proxy.cut()
    wait_until(lambda: fleet.online() == [])
    r1.proxy.heal()
    data.follows(r1)
    fleet.drop(data.dataflow.name)

    wait_until(lambda: fleet.gone(data.dataflow.name))
    assert r1.describe().dataflows == ()


def test_the_history_follows_what_is_there(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """Not what was said: after many dataflows and peeks it is as short as before."""
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)
    short = len(fleet.replay())
    for _ in range(8):
        gone = data.another("gone")
        wait_until(lambda gone=gone: fleet.reached(gone.export_ids[0], "r1") >= data.table.upper)
        for _ in range(20):
            assert fleet.peek(gone.export_ids[0], data.table.upper - 1)
        fleet.drop(gone.name)
        wait_until(lambda gone=gone: fleet.gone(gone.name))
        data.tick()
    data.follows(r1)

    told = fleet.replay()
    assert len(told) <= short + 2
    assert [c.dataflow.name for c in told if isinstance(c, CreateDataflow)] == [data.dataflow.name]


@pytest.mark.parametrize("listens", [False, True], ids=["nobody listens", "it speaks no protocol"])
def test_a_replica_that_is_none_harms_nobody(fleet: Fleet, r1: Remote, tmp_path: Path, listens: bool) -> None:
    """An address where nothing is, or something else."""
    stranger = socket.create_server(("127.0.0.1", 0))
    if listens:
        threading.Thread(target=_babble, args=(stranger,), daemon=True).start()
    address = f"127.0.0.1:{stranger.getsockname()[1]}"
    if not listens:
        stranger.close()
    fleet.attach_only("r0", address)
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.tick()
    data.follows(r1)
    fleet.drop(data.dataflow.name)

    wait_until(lambda: fleet.gone(data.dataflow.name))
    assert fleet.online() == ["r1"]
    stranger.close()


def _babble(stranger: socket.socket) -> None:
    try:
        while True:
            caller, _ = stranger.accept()
            caller.sendall(b"220 smtp.example.com ready\r\n" * 10)
            caller.close()
    except OSError:
        return
