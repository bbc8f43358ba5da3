"""The operator's watches under answers that end kopf: they begin again, and log it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kube.fault_proxy import AT_ONCE, ERRORS, OF_WATCHES, Asked, Fault, FaultProxy, fault_proxy
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.handlers.watch import thread_loop, watch_backoff, watches
from tidemark_operator.kube.client import DATAFLOWS, OURS, Body, Kube, Resource

pytestmark = pytest.mark.cluster

SPEC = {"instance": "default", "sql": "SELECT 1 AS a", "index": {}}
ENDING = {Fault.CONFLICT, Fault.GONE, *ERRORS} - {Fault.EXPIRES}
"""The faults at which kopf ends."""


@pytest.fixture
def proxy(kinds_installed: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(kinds_installed.kubeconfig) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _short_of_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(watches, "REQUEST_SECONDS", 3.0)
    monkeypatch.setattr(watches, "GATHER_SECONDS", 0.05)


class Seen:
    """The events of watches, by the name of the object."""

    def __init__(self) -> None:
        self.told: Counter[tuple[str, bool]] = Counter()
        self.missed = 0

    def observed(self, resource: Resource, body: Body, deleted: bool) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.told[body["metadata"]["name"], deleted] += 1

    def miss(self) -> None:
        self.missed += 1


@asynccontextmanager
async def watching(seen: Seen, proxy: FaultProxy, folder: Path, namespace: str) -> AsyncIterator[None]:
    kubeconfig = proxy.kubeconfig(folder / "kubeconfig")
    task = asyncio.create_task(watches.watch(seen.observed, seen.miss, kubeconfig, (namespace,)))
    try:
        async with asyncio.timeout(BOUND):
            yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.02)


def each_once(chosen: Callable[[Asked], bool], fault: Fault) -> Callable[[Asked], Fault | None]:
    """The first such request of each path."""
    met: set[str] = set()

    def choose(asked: Asked) -> Fault | None:
        if not chosen(asked) or asked.path in met:
            return None
        met.add(asked.path)
        return fault

    return choose


async def delete(kube: Kube, namespace: str, name: str) -> None:
    body = await kube.get(DATAFLOWS, namespace, name)
    assert body is not None
    await kube.delete(DATAFLOWS, namespace, name, body["metadata"]["uid"])


def of_ours(asked: Asked) -> bool:
    return asked.path.rpartition("/")[2] in {resource.plural for resource in OURS}


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), BOUND))
    assert not [thread for thread in threading.enumerate() if thread.name == "watches"]


@pytest.mark.parametrize("fault", [*OF_WATCHES, *AT_ONCE, Fault.LOST, Fault.HANGS], ids=lambda fault: fault.name)
def test_crash_of_each_watch_loses_no_later_change(
    fault: Fault,
    proxy: FaultProxy,
    kinds_installed: ControlPlane,
    tmp_path: Path,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first watch of each kind meets the fault. A later deletion is reported, or the watch says afterwards that
    something may be missed."""
    caplog.set_level(logging.WARNING)
    if fault is not Fault.HANGS:
        # else all watches are asked for again, and something may be missed, every few seconds
        monkeypatch.setattr(watches, "SILENCE_SECONDS", BOUND)

    async def scenario() -> None:
        seen = Seen()
        async with Kube.connect(kinds_installed.kubeconfig) as kube:
            proxy.choose(each_once(lambda asked: asked.watch, fault))
            async with watching(seen, proxy, tmp_path, namespace):
                await until(lambda: len(proxy.met) == len(OURS))
                names = [f"d{n}" for n in range(3)]
                for name in names:
                    await kube.create(DATAFLOWS, namespace, {"metadata": {"name": name}, "spec": SPEC})
                await until(lambda: all(seen.told[name, False] for name in names))
                missed = seen.missed
                await delete(kube, namespace, "d1")
                await until(lambda: seen.told["d1", True] or seen.missed > missed)

    run(scenario)
    reported = [record.getMessage() for record in caplog.records if record.name == watch_backoff.__name__]
    assert bool(reported) == (fault in ENDING)
    assert len(reported) == len(set(reported)) <= len(OURS), reported


@pytest.mark.parametrize("again", [False, True], ids=["at first", "begun anew"])
def test_crash_a_deletion_before_the_list_may_be_missed_and_is_reported(
    again: bool, proxy: FaultProxy, kinds_installed: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    """kopf's list is refused for some time, in which what it would have listed is deleted: no watch tells of it."""

    async def scenario() -> None:
        seen, lists = Seen(), Counter[bool]()
        conflict = each_once(lambda asked: again and asked.watch and "computeinstances" in asked.path, Fault.CONFLICT)

        def chosen(asked: Asked) -> Fault | None:
            if asked.watch or not asked.path.endswith("/dataflows"):
                return conflict(asked)
            lists[again] += 1
            return None if again and lists[again] == 1 else Fault.BUSY

        async with Kube.connect(kinds_installed.kubeconfig) as kube:
            await kube.create(DATAFLOWS, namespace, {"metadata": {"name": "d1"}, "spec": SPEC})
            proxy.choose(chosen)
            async with watching(seen, proxy, tmp_path, namespace):
                await until(lambda: any(fault is Fault.BUSY for _, fault in proxy.met))
                await delete(kube, namespace, "d1")
                missed = seen.missed
                proxy.heal()
                await until(lambda: seen.missed > missed)
        assert not seen.told["d1", True]

    run(scenario)


@pytest.mark.parametrize("fault", [*AT_ONCE, Fault.LOST, Fault.HANGS], ids=lambda fault: fault.name)
def test_crash_of_each_list_and_of_finding_the_kinds_and_all_is_seen(
    fault: Fault, proxy: FaultProxy, kinds_installed: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    """Each path that is read meets the fault once, those by which kopf finds our kinds among them."""

    async def scenario() -> None:
        seen = Seen()
        async with Kube.connect(kinds_installed.kubeconfig) as kube:
            await kube.create(DATAFLOWS, namespace, {"metadata": {"name": "d"}, "spec": SPEC})
            proxy.choose(each_once(lambda asked: not asked.watch, fault))
            async with watching(seen, proxy, tmp_path, namespace):
                await until(lambda: seen.told["d", False])
                await kube.create(DATAFLOWS, namespace, {"metadata": {"name": "later"}, "spec": SPEC})
                await until(lambda: seen.told["later", False])
        assert any(of_ours(asked) for asked, _ in proxy.met)
        assert any(not of_ours(asked) for asked, _ in proxy.met)

    run(scenario)


@pytest.mark.parametrize("hangs", ["nothing", "watches", "lists"])
def test_they_end_at_once_when_they_are_told_to(
    hangs: str,
    proxy: FaultProxy,
    kinds_installed: ControlPlane,
    tmp_path: Path,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also in the middle of a request that nobody answers. Their thread is gone; `run` sees to it. One that does not
    end, or leaves tasks that do not, would be told of."""
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        seen, asked = Seen(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def chosen(request: Asked) -> Fault | None:
            met = request.watch if hangs != "lists" else of_ours(request)
            if met:
                loop.call_soon_threadsafe(asked.set)
            return Fault.HANGS if met and hangs != "nothing" else None

        proxy.choose(chosen)
        async with watching(seen, proxy, tmp_path, namespace):
            await asked.wait()

    run(scenario)
    assert not [record.getMessage() for record in caplog.records if record.name == thread_loop.__name__]
