"""A Dataflow that kills each replica that hydrates it: with two replicas, the system goes on without it.

The poison is an ordinary view; what makes it one is this test, which sends SIGKILL to a replica whenever the replica's
status says that it is hydrating that view. It would hydrate for longer than anybody waits, so it is always caught.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from tests.e2e.system import System
from tests.e2e.system import wait_for as wait_a_little

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # several restarts of replicas, one after the other
]

HONEST = "SELECT n_regionkey, count(*) AS nations FROM tpch.nation GROUP BY n_regionkey"
POISON = "SELECT a.l_comment FROM tpch.lineitem a, tpch.lineitem b, tpch.lineitem c WHERE a.l_comment < b.l_comment"
Record = dict[str, Any]
wait_for = partial(wait_a_little, patience=1200.0)
"""A replica that comes back starts Spark first, two of them at a time: minutes, where the machine has other work."""


def records(system: System) -> dict[str, Record]:
    """The record in each ComputeReplica of the dataflows that hydrate there, by the ComputeReplica's uid."""
    items = json.loads(system.kubectl("get", "computereplicas", "-o", "json"))["items"]
    return {body["metadata"]["uid"]: body.get("status", {}).get("hydrating", {}) for body in items}


def hydrates(record: Record, name: str) -> bool:
    return name in [d["dataflow"] for d in record.get("dataflows", [])]


@contextmanager
def poisonous(system: System, name: str) -> Iterator[set[str]]:
    """Kills each replica that says that it hydrates `name`, until the end. Yields the killed incarnations."""
    killed: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for uid, record in records(system).items():
                pid = system.replica_pids().get(uid)
                if hydrates(record, name) and record["incarnation"] not in killed and pid is not None:
                    killed.add(record["incarnation"])
                    with suppress(ProcessLookupError):  # it has died meanwhile
                        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def test_a_poison_dataflow_is_left_out_and_the_others_go_on(system: System) -> None:
    """After the third death; not for the next operator either. Released, it is tried again; edited, it is well."""
    limits = {"resources": {"limits": {"cpu": 2, "memory": "1536Mi"}}}
    system.apply("ComputeReplica", "r2", {"instance": "default", **limits})
    system.dataflow("honest", HONEST)
    wait_for("the view", lambda: holds(system, "dataflow", "honest", "Hydrated"), system.log)
    wait_for("both replicas", lambda: all(online(system, r) for r in ("r1", "r2")), system.log)

    with poisonous(system, "poison") as killed:
        system.dataflow("poison", POISON)
        for number in (1, 2, 3):  # a replica takes its time to come back
            wait_for(f"death {number}", lambda number=number: len(killed) >= number, system.log)
        message = system.wait_condition("dataflow", "poison", "Scheduled", "False", "Quarantined")
        assert "3 times" in message
        wait_for("both replicas without it", lambda: free(system, "poison"), system.log)
        deaths = len(killed)  # more than three, where both had begun it again
        assert moves(system)
        system.kill_operator()
        system.start_operator()
        assert moves(system)
        system.wait_condition("dataflow", "poison", "Scheduled", "False", "Quarantined")
        assert len(killed) == deaths
        wait_for("the other to be cleared", lambda: not suspects(system, "honest"), system.log)

    system.kubectl("annotate", "dataflow", "poison", "compute.tidemark.dev/release=now")
    wait_for("another try", lambda: any(hydrates(r, "poison") for r in records(system).values()), system.log)
    system.dataflow("poison", HONEST)
    wait_for("it to be well", lambda: holds(system, "dataflow", "poison", "Ready"), system.log)
    wait_for("it to be cleared", lambda: not suspects(system, "poison"), system.log)
    assert len(system.query("SELECT * FROM poison")["rows"]) == 5


def free(system: System, name: str) -> bool:
    """Both replicas answer, and neither hydrates it."""
    return all(online(system, r) for r in ("r1", "r2")) and not any(hydrates(r, name) for r in records(system).values())


def suspects(system: System, name: str) -> list[Record]:
    """Revisions of the Dataflow that are blamed for deaths."""
    return list(system.get("dataflow", name)["status"].get("suspects", []))


def holds(system: System, kind: str, name: str, condition: str) -> bool:
    return bool(system.condition(kind, name, condition).get("status") == "True")


def online(system: System, replica: str) -> bool:
    return holds(system, "computereplica", replica, "Online")


def moves(system: System) -> bool:
    """The view that is well goes on."""
    reached = system.frontier("honest")
    wait_for("its frontier", lambda: system.frontier("honest") > reached, system.log)
    return True
