"""Leadership at a real API server: one operator at a time, and one that may have lost the Lease writes nothing.

Time is a clock that the test puts forward, so nothing here waits for a Lease to run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import LeadershipLost
from tidemark_operator.kube.client import DATAFLOWS, LEASES, ApiError, Body, Kube
from tidemark_operator.kube.leadership import FRESH_SECONDS, LEASE, LEASE_SECONDS, Leadership
from tidemark_operator.kube.lease import PROCESS, holder_of, spec_of, term_of

pytestmark = pytest.mark.cluster
Scenario = Callable[["Leaders"], Awaitable[None]]


class Leaders:
    """Operators that would lead in one namespace, and their clock."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace, self.now = kube, namespace, 1000.0

    def one(self, name: str) -> Leadership:
        return Leadership(self.kube, self.namespace, name, lambda: self.now)

    async def lease(self) -> Body:
        lease = await self.kube.get(LEASES, self.namespace, LEASE)
        assert lease is not None
        return lease

    async def change(self, **spec: object) -> None:
        lease = await self.lease()
        await self.kube.replace(LEASES, self.namespace, LEASE, {**lease, "spec": {**lease["spec"], **spec}})

    async def elsewhere(self) -> None:
        """The holder is on another machine: nobody here can know whether it runs."""
        lease = await self.lease()
        lease["metadata"]["annotations"][PROCESS] = "another machine"
        await self.kube.replace(LEASES, self.namespace, LEASE, lease)

    async def delete(self) -> None:
        await self.kube.delete(LEASES, self.namespace, LEASE, (await self.lease())["metadata"]["uid"])


@pytest.fixture
def run(kinds_installed: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    # on a busy machine a claim may get there and its answer come late: it would be made again, under a further term
    monkeypatch.setattr("tidemark_operator.kube.leadership.PATIENCE_SECONDS", BOUND)

    def run(scenario: Scenario) -> None:
        async def with_client() -> None:
            async with Kube.connect(kinds_installed.kubeconfig) as kube, asyncio.timeout(BOUND):
                await scenario(Leaders(kube, namespace))

        asyncio.run(with_client())

    return run


def test_one_of_two_standbys_leads_until_it_lets_go(run: Callable[[Scenario], None]) -> None:
    """Then the other, under the next term, without waiting for anything to run out."""

    async def scenario(there: Leaders) -> None:
        a, b = there.one("a"), there.one("b")
        standing = {asyncio.create_task(one.stand_by()): one for one in (a, b)}
        (first,), (second,) = await asyncio.wait(standing, return_when=asyncio.FIRST_COMPLETED)
        leader, other = standing[first], standing[second]
        await leader.renew()

        assert (leader.term, leader.leads) == (1, True)
        assert (other.term, other.leads) == (0, False)
        assert not second.done()
        await leader.release()
        assert not leader.leads
        assert await second == 2
        assert other.leads

    run(scenario)


def test_a_lease_that_is_not_renewed_is_taken_and_its_holder_has_lost(run: Callable[[Scenario], None]) -> None:
    """Whatever the clocks of machines say: the one who stands by goes by its own."""

    async def scenario(there: Leaders) -> None:
        a, b = there.one("a"), there.one("b")
        await a.stand_by()
        await there.elsewhere()
        standing = asyncio.create_task(b.stand_by())
        while not standing.done():
            there.now += LEASE_SECONDS / 4
            await asyncio.sleep(0.05)

        assert standing.result() == b.term == 2
        with pytest.raises(LeadershipLost, match="b leads under term 2, this process under 1"):
            await a.renew()
        assert not a.leads
        await a.release()
        assert holder_of(await there.lease()) == "b", "who has lost it has nothing to let go of"

    run(scenario)


def test_an_operator_that_did_not_renew_writes_nothing_until_it_is_known_to_lead(
    run: Callable[[Scenario], None],
) -> None:
    """A process that stood still, or whose API server was away, goes on where nobody took its place."""

    async def scenario(there: Leaders) -> None:
        leader, kube = there.one("a"), there.kube
        await leader.stand_by()
        kube.fence = leader.check
        body = {"metadata": {"name": "d"}, "spec": {"instance": "default", "sql": "SELECT 1 AS a", "index": {}}}
        written = await kube.create(DATAFLOWS, there.namespace, body)
        there.now += FRESH_SECONDS + 1
        uid = written["metadata"]["uid"]

        for attempt in (
            kube.create(DATAFLOWS, there.namespace, {**body, "metadata": {"name": "e"}}),
            kube.replace(DATAFLOWS, there.namespace, "d", written),
            kube.patch(DATAFLOWS, there.namespace, "d", {"metadata": {"labels": {"a": "b"}}}),
            kube.patch_status(DATAFLOWS, there.namespace, "d", {"status": {"observedGeneration": 1}}),
            kube.delete(DATAFLOWS, there.namespace, "d", uid),
        ):
            with pytest.raises(ApiError, match="was not renewed for 8 s: the operator writes nothing"):
                await attempt
        assert [d["metadata"]["name"] for d in await kube.list(DATAFLOWS, namespace=there.namespace)] == ["d"]
        await leader.renew()
        assert leader.term == 1
        await kube.delete(DATAFLOWS, there.namespace, "d", uid)

    run(scenario)


def test_crash_a_renewal_with_a_lost_answer_costs_nothing(run: Callable[[Scenario], None]) -> None:
    """The Lease is ours, only newer than what we know."""

    async def scenario(there: Leaders) -> None:
        leader = there.one("a")
        await leader.stand_by()
        await there.change(renewTime="2026-01-01T00:00:00.000000Z")
        await leader.renew()

        assert leader.leads
        assert term_of(await there.lease()) == leader.term == 1
        assert spec_of(await there.lease())["renewTime"] != "2026-01-01T00:00:00.000000Z"

    run(scenario)


def test_crash_a_lease_that_is_deleted_is_made_again_by_the_leader_under_the_same_term(
    run: Callable[[Scenario], None],
) -> None:
    """Unless another was quicker: then that one leads."""

    async def scenario(there: Leaders) -> None:
        leader = there.one("a")
        for _ in range(3):
            await leader.claim()
        await there.delete()
        await leader.renew()

        assert term_of(await there.lease()) == leader.term == 3
        await there.delete()
        assert await there.one("b").stand_by() == 1
        with pytest.raises(LeadershipLost, match="b leads under term 1, this process under 3"):
            await leader.renew()

    run(scenario)


def test_a_lease_that_is_deleted_is_not_made_again_by_a_leader_that_lets_go(run: Callable[[Scenario], None]) -> None:
    """An installation that goes takes its Lease with it."""

    async def scenario(there: Leaders) -> None:
        leader = there.one("a")
        await leader.stand_by()
        await there.delete()
        await leader.release()

        assert await there.kube.get(LEASES, there.namespace, LEASE) is None

    run(scenario)


def test_a_lease_without_a_holder_is_taken(run: Callable[[Scenario], None]) -> None:
    """The chart makes it, without a holder, so that it goes with the release."""

    async def scenario(there: Leaders) -> None:
        await there.kube.create(LEASES, there.namespace, {"metadata": {"name": LEASE, "labels": {"a": "b"}}})
        leader = there.one("a")

        assert await leader.stand_by() == 1
        assert (await there.lease())["metadata"]["labels"] == {"a": "b"}

    run(scenario)


def test_an_operator_without_the_right_to_the_lease_stands_by_and_says_so(
    kinds_installed: ControlPlane, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks again, for it may be given the right: an ApiError ends nobody who stands by."""

    async def asked() -> None:
        async with Kube.connect(kinds_installed.outsider_kubeconfig) as kube, asyncio.timeout(BOUND):
            standing = asyncio.create_task(Leadership(kube, namespace, "outsider").stand_by())
            while caplog.text.count("standing by, the Lease cannot be read: 403") < 2:
                assert not standing.done()
                await asyncio.sleep(0.05)
            standing.cancel()

    asyncio.run(asked())
