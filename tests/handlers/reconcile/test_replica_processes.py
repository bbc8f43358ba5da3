"""When a replica in its new shape takes the place of the one before."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.controller.harness import EMPTY, INDEX, VIEW, InstanceHarness, at, facade
from tests.resources.manifests import body
from tests.waiting import BOUND
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile.replica_processes import MAX_BEHIND_MS, SILENCE_MS, ReplicaProcesses, is_level
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import REPLICAS
from tidemark_operator.orchestrator.interface import Observation, Phase, Workers
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.responses import Description

state = partial(ReplicaState, None, None, None)
OLD, NEW = ReplicaId("r1.aaaaaaaa"), ReplicaId("r1.bbbbbbbb")
FAR = 100_000


def running(harness: InstanceHarness, *online: ReplicaId, since: int = 0) -> RunningInstance:
    """Both shapes are to be reached; those online were greeted, the others are silent, `since`."""
    replicas = {r: state(online=r in online, unheard_since_ms=since, first_greeted_ms=since) for r in (OLD, NEW)}
    return cast(RunningInstance, facade(harness.instance, online=online, replicas=replicas))


def level(old: Frontier | None, new: Frontier | None, *online: ReplicaId, now_ms: int = 0) -> bool:
    """Both with the same dataflow, each as far as it says."""
    harness = InstanceHarness(upper=FAR)
    harness.install()
    harness.connect(*online)
    for replica, time in ((OLD, old), (NEW, new)):
        if time is not None and replica in online:
            harness.report(replica, time)
    return is_level(running(harness, *online), OLD, NEW, now_ms)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (at(FAR), at(FAR), True),
        (at(FAR), at(FAR - MAX_BEHIND_MS), True),
        (at(FAR), at(FAR - MAX_BEHIND_MS - 1), False),
        (at(FAR), None, False),
        (at(FAR), at(300), False),
        (at(300), at(400), True),
        (at(300), None, True),
        (EMPTY, EMPTY, True),
        (EMPTY, at(FAR), False),
    ],
)
def test_level_is_all_that_the_old_one_has(old: Frontier | None, new: Frontier | None, expected: bool) -> None:
    """Hydrated, and not far behind; what the old one has not hydrated itself, and says so, is not waited for."""
    assert level(old, new, OLD, NEW) is expected


def test_crash_of_the_operator_amid_a_surge_takes_nothing_over() -> None:
    """The new shape is the first to answer, or the old one has not told the new operator yet what it has."""
    assert not level(None, at(FAR), NEW)
    assert not level(None, None, OLD, NEW)
    assert not level(None, at(FAR), OLD, NEW, now_ms=SILENCE_MS)


def test_a_connection_that_breaks_for_a_moment_is_no_end_of_the_old_shape() -> None:
    """After the last word of the old one, and until it has told everything anew, the new one waits."""
    harness = InstanceHarness(upper=FAR)
    harness.install()
    harness.connect(OLD, NEW)
    harness.report(OLD, at(FAR))

    harness.instance.disconnect(OLD)
    assert not is_level(running(harness, NEW), OLD, NEW, 1_000)
    harness.connect(OLD)
    assert not is_level(running(harness, OLD, NEW, since=2_000), OLD, NEW, 3_000)
    harness.report(OLD, at(FAR))
    harness.report(NEW, at(FAR))
    assert is_level(running(harness, OLD, NEW, since=2_000), OLD, NEW, 3_000)


def test_an_old_shape_that_is_broken_for_good_holds_nothing_back() -> None:
    """Nobody reads anything of what has been silent for long, and what it never tells of it does not have."""
    assert level(None, None, NEW, now_ms=SILENCE_MS + 1)
    assert level(None, None, OLD, NEW, now_ms=SILENCE_MS + 1)


NOTHING = Description("incarnation", None, 0, (), (), ())


@pytest.mark.parametrize("serves", [True, False], ids=["it served before", "it never did"])
def test_an_old_shape_that_is_cut_off_again_and_again_holds_nothing_back(serves: bool) -> None:
    """Before it has told anything: what ends its connection may do so for ever. But it has a minute, as any other."""
    harness, old = InstanceHarness(upper=FAR), state(unheard_since_ms=1)
    harness.install()
    harness.connect(NEW)
    both = facade(harness.instance, online=[NEW], replicas={OLD: old})
    level_after: list[int] = []
    if serves:
        old.greeted(NOTHING, 2)
        old.mark_heard(3)
        old.mark_lost("it is gone", 4)
    for now_ms in range(1_000, 3 * SILENCE_MS, 1_000):
        harness.connect(OLD)
        old.greeted(NOTHING, now_ms)
        both.online = [OLD, NEW]
        greeted = is_level(cast(RunningInstance, both), OLD, NEW, now_ms)
        harness.instance.disconnect(OLD, now_ms + 10)
        old.mark_lost("a plan that it cannot read", now_ms + 10)
        both.online = [NEW]
        if greeted or is_level(cast(RunningInstance, both), OLD, NEW, now_ms + 900):
            level_after.append(now_ms)
    assert SILENCE_MS - 1_000 <= level_after[0] <= SILENCE_MS + 1_000
    assert len(level_after) == len(range(level_after[0], 3 * SILENCE_MS, 1_000)), "and from then on"


def test_an_old_shape_that_has_told_something_has_its_minute_again() -> None:
    """Its further indexes come with its first report, or soon after."""
    old = state(unheard_since_ms=1)
    old.greeted(NOTHING, 5_000)
    assert (old.unheard_since_ms, old.first_greeted_ms) == (1, 5_000)
    old.mark_lost("", 6_000)
    old.greeted(NOTHING, 7_000)
    assert (old.unheard_since_ms, old.first_greeted_ms, old.greeted_ms) == (1, 5_000, 7_000)
    old.mark_heard(8_000)
    old.mark_heard(9_000)
    assert (old.unheard_since_ms, old.first_greeted_ms) == (0, 8_000)
    old.mark_lost("", 10_000)
    assert (old.unheard_since_ms, old.first_greeted_ms) == (10_000, 0)
    assert (old.silent_since_ms, old.online) == (10_000, False)


def test_one_that_does_not_answer_never_takes_over() -> None:
    """Nor does one whose old shape nobody has tried to reach yet."""
    unseen = InstanceHarness(upper=FAR)
    unseen.connect(NEW)
    alone = cast(RunningInstance, facade(unseen.instance, online=[NEW], replicas={}))

    assert not level(at(FAR), at(FAR), OLD, now_ms=SILENCE_MS + 1)
    assert not is_level(alone, OLD, NEW, SILENCE_MS + 1)


def test_one_export_that_is_behind_holds_the_whole_replica_back() -> None:
    """Views are readable throughout: all of them."""
    harness = InstanceHarness(upper=FAR)
    harness.install()
    harness.connect(OLD, NEW)
    harness.report(OLD, at(FAR))
    both = running(harness, OLD, NEW)

    harness.report(NEW, at(FAR), INDEX)
    assert not is_level(both, OLD, NEW, 0)
    harness.report(NEW, at(FAR), VIEW)
    assert is_level(both, OLD, NEW, 0)


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
    context = SimpleNamespace(
        cache=cache,
        orchestrator=orchestrator,
        running=lambda namespace, name: None,
        instance=lambda namespace, name: None,
        peers=SimpleNamespace(retain=lambda replicas: None),
    )
    changed: list[Key] = []
    processes = ReplicaProcesses(cast(ReconcileContext, context), changed.append)

    for shapes in ((), ("a",), ("a",), ("a", "b"), ("b",)):
        there[:] = [Observation(Phase.RUNNING, f"{shape}:1", shape=shape) for shape in shapes]
        processes.check()

    assert changed == [key] * 4
    assert len(asked) == 4

    there[:] = [Observation(Phase.RUNNING, "b:1", shape="b", executors=Workers(2, 1))]
    processes.check()
    processes.check()
    assert changed == [key] * 5
    assert len(asked) == 4


def test_news_of_the_orchestrator_start_a_look() -> None:
    """And each second, whatever it says."""

    async def scenario() -> None:
        looked, news = asyncio.Event(), asyncio.Event()

        class Told(ReplicaProcesses):
            def check(self) -> None:
                looked.set()

        context = SimpleNamespace(orchestrator=SimpleNamespace(news=news))
        running_on = asyncio.create_task(Told(cast(ReconcileContext, context), lambda key: None).run())
        try:
            for _ in range(3):
                news.set()
                await looked.wait()
                assert not news.is_set()
                looked.clear()
            await looked.wait()
        finally:
            running_on.cancel()

    asyncio.run(asyncio.wait_for(scenario(), BOUND))
