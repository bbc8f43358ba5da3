"""Pods of the SQL port, of the operator and of the replica die while clients ask.

Each answer is right, and answers come again. Another question has an error, and no client waits longer than its bound.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.pgwire.polling_pods import errors_of, polling, summary
from tests.cluster.pgwire.sql_port import HOME, SqlPort
from tests.cluster.waiting import wait_for
from tests.cluster.whole.gateway import leader
from tests.cluster.whole.pod_faults import OPERATOR, REPLICA, kill_in, processes
from tidemark_devcluster.images.build import Image

PGWIRE = ("python", "tidemark_pgwire")
FORCED = ("--grace-period=0", "--force", "--wait=false")


def ports_killed(served: SqlPort) -> None:
    """The ports of all pods end at one moment: a client may be connected to any."""
    for name in served.wait_for_pods(2):
        kill_in(served.system, HOME, name, PGWIRE)


def ports_deleted(served: SqlPort) -> None:
    served.kubectl("delete", "pod", *served.wait_for_pods(2), *FORCED)


def operator_killed(served: SqlPort) -> None:
    kill_in(served.system, HOME, leader(served.system), OPERATOR)


def operator_deleted(served: SqlPort) -> None:
    served.kubectl("delete", "pod", leader(served.system), *FORCED)


def replica_killed(served: SqlPort) -> None:
    kill_in(served.system, served.system.team, served.system.driver(), REPLICA)


def replica_deleted(served: SqlPort) -> None:
    served.system.kubectl("delete", "pod", served.system.driver(), *FORCED)


@pytest.mark.parametrize(
    ("how", "notices"),
    [
        (ports_killed, True),
        (ports_deleted, True),
        (operator_killed, False),
        (operator_deleted, False),
        (replica_killed, False),
        (replica_deleted, False),
    ],
)
def test_crash_clients_go_on(
    served: SqlPort,
    images: dict[str, Image],
    capsys: pytest.CaptureFixture[str],
    how: Callable[[SqlPort], None],
    notices: bool,
) -> None:
    """A client whose connection ended has an error; one whose question waits for another leader may have none."""
    before = processes(served.system.drivers())
    with polling(served, images["replica"].name) as clients:
        how(served)
        for client in clients:
            client.wait_for_answers()
        found = {client.kind: client.end() for client in clients}
    with capsys.disabled():
        for kind, tries in found.items():
            print(f"\n{how.__name__}, {kind}: {summary(tries)}")
    for tries in found.values():
        assert errors_of(tries) or not notices
    if how in (replica_killed, replica_deleted):
        wait_for("another driver", lambda: not before & processes(served.system.drivers()), served.system.explain)
        served.system.wait_condition("computereplica", "r1", "Online")
    served.wait_for_pods(2)
    served.kubectl("rollout", "status", "deployment/tidemark-operator", "--timeout=280s")
