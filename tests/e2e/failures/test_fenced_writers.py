"""A replica without a connection goes on with its last commands. Once another revision of the view has taken over,
the table accepts no append of the old one.

    r1   old ──► new, takes over under term 2 ──────────────────►
    r2   old, nobody speaks to it ─────────────► fenced ──────── spoken to again: new
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.failures.fleet import Fleet
from tests.e2e.failures.remote_replicas import STEP, Data, Remote
from tests.replica.conversations import unique
from tests.replica.plans import copies
from tests.replica.process import wait_until
from tests.replica.tables import Table, persisted
from tidemark_operator.controller.frontiers.succession import Succession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broad]


def remove(fleet: Fleet, remote: Remote) -> None:
    fleet.detach(remote.name)


def cut_off(fleet: Fleet, remote: Remote) -> None:
    remote.proxy.cut()
    wait_until(lambda: remote.name not in fleet.online())


def add(fleet: Fleet, remote: Remote) -> None:
    fleet.attach(remote.name, remote.proxy.address)


def join(fleet: Fleet, remote: Remote) -> None:
    remote.proxy.heal()
    wait_until(lambda: remote.name in fleet.online())


Act = Callable[[Fleet, Remote], None]


@pytest.mark.parametrize(("lose", "regain"), [(remove, add), (cut_off, join)], ids=["removed", "cut off"])
def test_crash_a_replica_with_the_old_revision_that_still_tries_to_write_is_fenced(
    fleet: Fleet, r1: Remote, r2: Remote, tmp_path: Path, lose: Act, regain: Act
) -> None:
    """Times before the take-over stay as they were, those after it are the new revision's alone; spoken to again, the
    replica has the new one."""
    fleet.attach("r1", r1.proxy.address)
    data = Data(fleet, tmp_path)
    data.follows(r1)  # one Spark starts after the other
    fleet.attach("r2", r2.proxy.address)
    data.follows(r1, r2)
    lose(fleet, r2)

    other = Table(tmp_path, unique("t"))
    other.append(data.table.upper, ((7, "new"), STEP - 1, 1))
    new = copies(unique("d"), data.table.upper - 1, source=other.metadata, index=unique("i"), view=data.view)
    index, written = new.export_ids
    beside = Succession({index: data.index, written: data.written}, frozenset({written}))
    fleet.create(new, other.metadata, succession=beside)
    wait_until(lambda: fleet.reached(written, "r1") >= other.upper)
    before = data.table.upper
    fleet.keep(data.view, before - 1)
    fleet.take_over(new.name, data.dataflow.name)
    upper = before + STEP
    other.append(upper, ((8, "new"), upper - 1, 1))
    wait_until(lambda: fleet.write(written) >= upper)

    while data.table.upper <= upper:  # beyond what is written: only now the old one has something to write
        data.tick()
    wait_until(lambda: any(data.written in line and "took over" in line for line in r2.process.log_text().splitlines()))
    assert persisted(data.view.location, before - 1) == data.table.at(before - 1)
    assert persisted(data.view.location, upper - 1) == other.at(upper - 1)

    regain(fleet, r2)
    other.append(upper + STEP, ((9, "new"), upper, 1))
    wait_until(lambda: fleet.reached(written, "r2") >= upper + STEP)
    wait_until(lambda: fleet.write(written) >= upper + STEP)
    assert {d.export_ids for d in r2.describe().dataflows} == {new.export_ids}
    assert persisted(data.view.location, upper + STEP - 1) == other.at(upper + STEP - 1)
