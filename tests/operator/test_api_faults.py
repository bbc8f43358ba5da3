"""Each write of the operator under each fault of the API server or the network: it reports a failure to be retried,
and the retry leaves the state of one write without a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.controller.frontiers.test_revision_identities import revision
from tests.kube.fault_proxy import AT_ONCE, Asked, Fault, FaultProxy, fault_proxy
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import OperatorError
from tidemark_operator.handlers.finalizers import FINALIZER, set_finalizer
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.kube import client
from tidemark_operator.kube.cache import Cache, Key, key_of
from tidemark_operator.kube.client import DATAFLOWS, EVENTS, LEASES, REVISIONS, ApiError, Body, Kube
from tidemark_operator.kube.events import Events
from tidemark_operator.kube.leadership import LEASE, Leadership
from tidemark_operator.kube.lease import term_of
from tidemark_operator.kube.revisions import RevisionOwner, Revisions
from tidemark_operator.resources.manifest.meta import Meta

pytestmark = pytest.mark.cluster

FAULTS = (*AT_ONCE, Fault.DONE_AND_BROKEN, Fault.DONE_AND_LOST, Fault.LOST, Fault.HANGS)
PATIENCE_SECONDS = 2.0
"""With a request that nobody answers; the operator's is longer."""
TRIES = 6


@pytest.fixture(scope="module")
def proxy(kinds_installed: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(kinds_installed.kubeconfig) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _short_of_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", PATIENCE_SECONDS)


class Place:
    """A Dataflow in a namespace, and clients: one that meets faults, one that does not."""

    def __init__(self, faulty: Kube, plain: Kube, namespace: str, body: Body) -> None:
        self.faulty, self.plain, self.namespace = faulty, plain, namespace
        self.key: Key = key_of(DATAFLOWS, body)
        self.body, self.cache = body, Cache()
        self.cache.put(self.key, body)
        self.meta = Meta.parse(body)
        self.owner = RevisionOwner(DATAFLOWS.api_version, DATAFLOWS.kind, self.meta)
        self.leadership = Leadership(faulty, namespace, "me")
        self.revisions = Revisions(faulty)

    async def there(self) -> Body:
        body = await self.plain.get(DATAFLOWS, self.namespace, "d")
        assert body is not None
        return body


async def store_revision(place: Place) -> None:
    await place.revisions.store(place.owner, 1, revision())


async def revision_is_stored(place: Place) -> bool:
    bodies = await place.plain.list(REVISIONS, namespace=place.namespace)
    return [b["metadata"]["name"] for b in bodies] == [f"d-{place.meta.uid[:8]}-r1"]


async def write_status(place: Place) -> None:
    publisher = StatusPublisher(place.faulty, place.cache, lambda *_: None, lambda *_: True)
    try:
        await publisher.store(place.key, {"observedGeneration": 1}, place.meta.uid)
    except ApiError:
        # what a watch would bring, or the next look
        place.cache.put(place.key, await place.there())
        raise


async def status_is_written(place: Place) -> bool:
    status: object = (await place.there()).get("status")
    return status == {"observedGeneration": 1}


async def add_finalizer(place: Place) -> None:
    await set_finalizer(place.faulty, place.cache, place.key, True)


async def finalizer_is_there(place: Place) -> bool:
    return (await place.there())["metadata"].get("finalizers", []) == [FINALIZER]


async def lead(place: Place) -> None:
    if not place.leadership.term:
        await place.leadership.claim()
    await place.leadership.renew()


async def leads(place: Place) -> bool:
    lease = await place.plain.get(LEASES, place.namespace, LEASE)
    assert lease is not None
    return lease["spec"]["holderIdentity"] == "me" and place.leadership.leads and term_of(lease) >= 1


async def delete(place: Place) -> None:
    await place.faulty.delete(DATAFLOWS, place.namespace, "d", place.meta.uid)


async def is_gone(place: Place) -> bool:
    return await place.plain.get(DATAFLOWS, place.namespace, "d") is None


Step = Callable[[Place], Awaitable[Any]]
OPERATIONS: dict[str, tuple[str, Step, Step]] = {
    "a plan is stored": ("POST", store_revision, revision_is_stored),
    "a status is written": ("PATCH", write_status, status_is_written),
    "a finalizer is set": ("PATCH", add_finalizer, finalizer_is_there),
    "the Lease is renewed": ("PUT", lead, leads),
    "an object is deleted": ("DELETE", delete, is_gone),
}


def first(count: int, method: str, fault: Fault) -> Callable[[Asked], Fault | None]:
    """The first requests of that method meet the fault, so many."""
    left = count

    def chosen(asked: Asked) -> Fault | None:
        nonlocal left
        if asked.method != method or left == 0:
            return None
        left -= 1
        return fault

    return chosen


async def again_and_again(step: Step, place: Place) -> None:
    """Reconcile again and again, as the work queue does, without the waits between."""
    for _ in range(TRIES):
        try:
            await step(place)
            return
        except OperatorError:
            continue
    raise AssertionError(f"it failed {TRIES} times")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_crash_of_a_request_and_its_retry_leave_the_state_of_one_request(
    operation: str, fault: Fault, proxy: FaultProxy, kinds_installed: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    """Two requests meet the fault, one after the other."""
    method, step, holds = OPERATIONS[operation]

    async def scenario() -> None:
        spec = {"instance": "default", "sql": "SELECT 1 AS a", "index": {}}
        async with (
            asyncio.timeout(BOUND),
            Kube.connect(kinds_installed.kubeconfig) as plain,
            Kube.connect(proxy.kubeconfig(tmp_path / "kubeconfig")) as faulty,
        ):
            body = await plain.create(DATAFLOWS, namespace, {"metadata": {"name": "d"}, "spec": spec})
            place = Place(faulty, plain, namespace, body)
            if step is lead:
                await place.leadership.claim()
            met = len(proxy.met)
            proxy.choose(first(2, method, fault))
            try:
                await again_and_again(step, place)
            finally:
                proxy.heal()
            assert len(proxy.met) - met >= 1
            assert await holds(place)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_reading_meets_a_fault_and_is_tried_again(
    fault: Fault, proxy: FaultProxy, kinds_installed: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    """An object is never taken for gone, nor a list for shorter than it is."""

    async def scenario() -> None:
        spec = {"instance": "default", "sql": "SELECT 1 AS a", "index": {}}
        async with (
            asyncio.timeout(BOUND),
            Kube.connect(kinds_installed.kubeconfig) as plain,
            Kube.connect(proxy.kubeconfig(tmp_path / "kubeconfig")) as faulty,
        ):
            await plain.create(DATAFLOWS, namespace, {"metadata": {"name": "d"}, "spec": spec})
            for read in (get, names):
                proxy.choose(first(1, "GET", fault))
                if fault in (Fault.LOST, Fault.DONE_AND_LOST):
                    # the client itself asks again, where a connection ends
                    with suppress(ApiError):
                        assert await read(faulty) == ["d"]
                else:
                    with pytest.raises(ApiError) as error:
                        await read(faulty)
                    assert error.value.status != 404
                proxy.heal()
            assert await names(faulty) == await get(faulty) == ["d"]

    async def get(kube: Kube) -> list[str]:
        body = await kube.get(DATAFLOWS, namespace, "d")
        return [body["metadata"]["name"]] if body else []

    async def names(kube: Kube) -> list[str]:
        return [body["metadata"]["name"] for body in await kube.list(DATAFLOWS, namespace=namespace)]

    asyncio.run(scenario())


def test_an_event_that_cannot_be_written_fails_nothing(
    proxy: FaultProxy, kinds_installed: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    """It is news, not state."""

    async def scenario() -> None:
        async with asyncio.timeout(BOUND), Kube.connect(proxy.kubeconfig(tmp_path / "kubeconfig")) as faulty:
            events = Events(faulty, "me")
            for fault in FAULTS:
                proxy.choose(first(1, "POST", fault))
                await events.warn(Key(DATAFLOWS, namespace, "d"), "uid", "Reason", fault.name)
            proxy.heal()
            written = await faulty.list(EVENTS, namespace=namespace)
        assert {event["note"] for event in written} == {"DONE_AND_BROKEN", "DONE_AND_LOST"}

    asyncio.run(scenario())
