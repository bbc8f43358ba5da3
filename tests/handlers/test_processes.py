"""When a replica in its new shape takes the place of the one before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.controller.worlds import EMPTY, INDEX, VIEW, World, at
from tests.resources.manifests import body
from tidemark_operator.fleet.running import RunningInstance
from tidemark_operator.handlers.processes import BEHIND_MS, Processes, is_level
from tidemark_operator.handlers.world import World as Handlers
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import REPLICAS
from tidemark_operator.orchestrator.interface import Observation, Phase
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ReplicaId

OLD, NEW = ReplicaId("r1.aaaaaaaa"), ReplicaId("r1.bbbbbbbb")
FAR = 100_000


def level(old: Frontier | None, new: Frontier | None, *online: ReplicaId) -> bool:
    """Both with the same dataflow, each as far as it says."""
    world = World(upper=FAR)
    world.install()
    world.connect(OLD, NEW)
    for replica, time in ((OLD, old), (NEW, new)):
        if time is not None:
            world.report(replica, time)
    return is_level(cast(RunningInstance, SimpleNamespace(core=world.instance, online=online)), OLD, NEW)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (at(FAR), at(FAR), True),
        (at(FAR), at(FAR - BEHIND_MS), True),
        (at(FAR), at(FAR - BEHIND_MS - 1), False),
        (at(FAR), None, False),
        (at(FAR), at(300), False),
        (None, at(400), True),
        (None, None, True),
        (EMPTY, EMPTY, True),
        (EMPTY, at(FAR), False),
    ],
)
def test_level_is_all_that_the_old_one_has(old: Frontier | None, new: Frontier | None, expected: bool) -> None:
    """Hydrated, and not far behind; what the old one has not hydrated itself is not waited for."""
    assert level(old, new, OLD, NEW) is expected


def test_one_that_does_not_answer_never_takes_over() -> None:
    """And of an old one that does not answer nobody reads anything any more."""
    assert not level(at(FAR), at(FAR), OLD)
    assert level(at(FAR), None, NEW)


def test_one_export_that_is_behind_holds_the_whole_replica_back() -> None:
    """Views are readable throughout: all of them."""
    world = World(upper=FAR)
    world.install()
    world.connect(OLD, NEW)
    world.report(OLD, at(FAR))
    running = cast(RunningInstance, SimpleNamespace(core=world.instance, online=[OLD, NEW]))

    world.report(NEW, at(FAR), INDEX)
    assert not is_level(running, OLD, NEW)
    world.report(NEW, at(FAR), VIEW)
    assert is_level(running, OLD, NEW)


def test_connections_follow_the_processes_that_are_there() -> None:
    """Seen anew each second: an event tells of nothing that could be missed."""
    key = Key(REPLICAS, "ns", "r1")
    cache = Cache()
    cache.put(key, body("ComputeReplica", {"instance": "default"}, "r1"))
    there: list[Observation] = []
    asked: list[Any] = []
    orchestrator = SimpleNamespace(
        observe=lambda uid: tuple(there), retain=asked.append, refusal=lambda spec: None, take_over=asked.append
    )
    world = SimpleNamespace(
        cache=cache,
        orchestrator=orchestrator,
        running=lambda namespace, name: None,
        instance=lambda namespace, name: None,
        peers=SimpleNamespace(retain=lambda replicas: None),
    )
    changed: list[Key] = []
    processes = Processes(cast(Handlers, world), changed.append)

    for shapes in ((), ("a",), ("a",), ("a", "b"), ("b",)):
        there[:] = [Observation(Phase.RUNNING, f"{shape}:1", shape=shape) for shape in shapes]
        processes.look()

    assert changed == [key] * 4
    assert len(asked) == 4
