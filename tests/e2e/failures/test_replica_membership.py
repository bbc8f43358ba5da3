"""Replicas of an instance join and leave at any time: reads are right, and go on while one replica runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.failures.fleet import Fleet
from tests.e2e.failures.remote_replicas import Data, Remote
from tests.replica.process import wait_until
from tidemark_protocol.frontier import Frontier

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # several restarts of replicas, one after the other
]


def test_crash_replicas_join_late_die_and_leave(fleet: Fleet, r1: Remote, r2: Remote, tmp_path: Path) -> None:
    """A second one joins, the first is killed, both are, the first is taken away; made anew, it has everything."""
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.tick()
    data.follows(r1)
    wait_until(lambda: fleet.since(data.index) > Frontier.at(data.dataflow.as_of))

    fleet.attach("r2", r2.proxy.address)
    data.tick()
    data.follows(r1, r2)

    r1.process.kill()
    data.tick()
    data.follows(r2)
    r1.process.start()
    data.follows(r1, r2)

    for each in (r1, r2):
        each.process.kill()
    wait_until(lambda: fleet.online() == [])
    data.tick()
    for each in (r1, r2):
        each.process.start()
    data.follows(r1, r2)

    fleet.detach("r1")
    for _ in range(3):
        data.tick()
        data.follows(r2)
    dropped = data.another("dropped-meanwhile")
    fleet.drop(dropped.name)
    wait_until(lambda: fleet.gone(dropped.name))
    fleet.attach("r1", r1.proxy.address)
    data.tick()
    data.follows(r1, r2)
    assert {d.export_ids for d in r1.describe().dataflows} == {data.dataflow.export_ids}
