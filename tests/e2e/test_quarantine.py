"""A Dataflow that kills whichever replica hydrates it: with two replicas, the system goes on without it.

The poison is an ordinary view; what makes it one is this test, which sends SIGKILL to a replica whenever the replica's
status says that it is hydrating that view. It hydrates slowly enough to be caught, since it is a large product.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

HONEST = "SELECT n_regionkey, count(*) AS nations FROM tpch.nation GROUP BY n_regionkey"
POISON = """
SELECT a.l_linenumber, sum(a.l_tax * b.l_tax) AS total
FROM tpch.lineitem a JOIN tpch.lineitem b ON a.l_linenumber = b.l_linenumber
GROUP BY a.l_linenumber
"""


@contextmanager
def poisonous(system: System, name: str) -> Iterator[list[str]]:
    """Until the end, any replica that says it is hydrating `name` is killed; the replicas that were, in order."""
    killed: list[str] = []
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for replica in ("r1", "r2"):
                body = system.get("computereplica", replica)
                hydrating = body.get("status", {}).get("hydrating", {})
                pid = system.replica_pids().get(body["metadata"]["uid"])
                there = [d["dataflow"] for d in hydrating.get("dataflows", [])]
                if name in there and hydrating["incarnation"] not in seen and pid is not None:
                    seen.add(hydrating["incarnation"])
                    os.kill(pid, signal.SIGKILL)
                    killed.append(replica)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def test_a_poison_dataflow_is_left_out_and_the_others_go_on(system: System) -> None:
    """After the third death; not for the next operator either. Released, it is tried again."""
    limits = {"resources": {"limits": {"cpu": 2, "memory": "1536Mi"}}}
    system.apply("ComputeReplica", "r2", {"instance": "default", **limits})
    system.dataflow("honest", HONEST)
    system.wait_hydrated("honest")
    wait_for("both replicas", lambda: all(online(system, r) for r in ("r1", "r2")), system.log)

    with poisonous(system, "poison") as killed:
        system.dataflow("poison", POISON)
        for number in (1, 2, 3):  # a replica takes its time to come back
            wait_for(f"death {number}", lambda number=number: len(killed) >= number, system.log)
        message = system.wait_condition("dataflow", "poison", "Scheduled", "False", "Quarantined")
        assert "3 times" in message
        deaths = len(killed)  # more than three, where it was quicker than the kill and cleared itself
        wait_for("both replicas again", lambda: all(online(system, r) for r in ("r1", "r2")), system.log)
        system.wait_hydrated("honest")
        system.kill_operator()
        system.start_operator()
        wait_for("the view to go on", lambda: moves(system), system.log)
        system.wait_condition("dataflow", "poison", "Scheduled", "False", "Quarantined")
        assert len(killed) == deaths

    system.kubectl("annotate", "dataflow", "poison", "compute.tidemark.dev/release=now")
    system.wait_hydrated("poison")
    assert "suspects" not in system.get("dataflow", "poison")["status"]


def online(system: System, replica: str) -> bool:
    return bool(system.condition("computereplica", replica, "Online").get("status") == "True")


def moves(system: System) -> bool:
    reached = system.frontier("honest")
    wait_for("its frontier", lambda: system.frontier("honest") > reached, system.log)
    return True
