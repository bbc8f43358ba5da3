"""Faults between a controller and real replicas, and in them: none stops the others, loses anything, or doubles it.

Two replica processes on Spark, the operator's controller, and toxiproxy between them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.failures.fleet import Fleet
from tests.e2e.failures.remote_replicas import STEP, Data, Remote
from tests.replica.process import wait_until
from tests.waiting import BOUND
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages.commands import CreateDataflow
from tidemark_protocol.messages.responses import PeekError, PeekRows

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broad]


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
    wait_until(lambda: fleet.reached(old.export_ids[0], "r1") >= data.table.upper)
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
        # compaction reaches the healthy replica
        wait_until(lambda: {c.id: c.since for c in r1.describe().collections}[data.index] > Frontier.at(STEP))
        wait_until(lambda: fleet.online() == ["r1"])
    finally:
        mend(r2)

    wait_until(lambda: fleet.online() == ["r1", "r2"])
    data.tick()
    data.follows(r1, r2)
    wait_until(lambda: fleet.gone(old.name))
    wants = {data.dataflow.export_ids, new.export_ids}
    wait_until(lambda: {d.export_ids for d in r2.describe().dataflows} == wants)
    after = r1.describe()
    assert (after.incarnation, after.hydrations) == (healthy.incarnation, healthy.hydrations + 1)


def test_crash_the_connection_breaks_while_it_is_reconciled(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
    """After so many bytes of each attempt, and meanwhile a dataflow is dropped: the rest is reused at the end. Of the
    dropped one nothing is said any more: who did not ask for it would take that for the end of what it may ask for
    later under this id."""
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
    dropped = others[0].export_ids[0]
    fleet.drop(others[0].name)
    reported = fleet.said_of(dropped)
    wait_until(lambda: (e := r1.describe().epoch) is not None and e > greeted)
    assert len(r1.describe().dataflows) == len(others) + 1, "what was not said to the end is not acted on"
    r1.proxy.heal()

    wait_until(lambda: len(r1.describe().dataflows) == len(others))
    data.tick()
    data.follows(r1)
    after = r1.describe()
    assert (after.incarnation, after.hydrations) == (before.incarnation, before.hydrations)
    wait_until(lambda: fleet.gone(others[0].name))
    # what follows the reconciliation has been heard, so all that came of it has
    assert reported
    assert fleet.said_of(dropped) == reported


def test_a_reused_dataflow_reports_its_end(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
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
    assert fleet.said_of(data.index)[-1].output == Frontier.empty()


def test_a_targeted_peek_fails_with_its_target(fleet: Fleet, r1: Remote, r2: Remote, tmp_path: Path) -> None:
    """Answered by that replica while it is there; given up when it is lost, though the other could answer."""
    for each in (r1, r2):
        fleet.attach(each.name, each.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1, r2)
    at = data.table.upper - 1
    assert fleet.peek(data.index, at, "r2") == fleet.peek(data.index, at, "r1") == fleet.peek(data.index, at)

    later = [fleet.ask(data.index, at + STEP, name) for name in ("r1", "r2")]
    r2.proxy.cut()
    lost = later[1].result(BOUND)
    assert isinstance(lost, PeekError)
    assert "r2" in lost.message
    assert isinstance(fleet.ask(data.index, at, "r2").result(BOUND), PeekError)
    data.tick()
    assert isinstance(later[0].result(BOUND), PeekRows)
    r2.proxy.heal()
    data.follows(r1, r2)


def test_the_history_follows_the_installed_dataflows(fleet: Fleet, r1: Remote, tmp_path: Path) -> None:
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

    reported = fleet.replay()
    assert len(reported) <= short + 2
    assert [c.dataflow.name for c in reported if isinstance(c, CreateDataflow)] == [data.dataflow.name]


@pytest.mark.parametrize("listens", [False, True], ids=["nobody listens", "it speaks no protocol"])
def test_a_replica_that_is_none_harms_nothing(fleet: Fleet, r1: Remote, tmp_path: Path, listens: bool) -> None:
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
