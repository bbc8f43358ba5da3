"""Behaviour of a real API server that the operator relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.controller.frontiers.test_revision_identities import revision
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import LeadershipLost, OperatorError
from tidemark_operator.handlers.finalizers import FINALIZER, set_finalizer
from tidemark_operator.handlers.publish.publisher import StatusPublisher
from tidemark_operator.handlers.publish.ready_event import note_ready
from tidemark_operator.handlers.publish.status_pauses import PAUSE_SECONDS
from tidemark_operator.kube import leadership
from tidemark_operator.kube.cache import Cache, Key, key_of
from tidemark_operator.kube.client import DATAFLOWS, EVENTS, LEASES, Body, Conflict, Invalid, Kube
from tidemark_operator.kube.events import Events
from tidemark_operator.kube.leadership import LEASE, Leadership
from tidemark_operator.kube.revisions import RevisionOwner, Revisions, parse_revision
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_operator.resources.conditions.condition import merge_conditions, no, yes
from tidemark_operator.resources.manifest.meta import Meta

pytestmark = pytest.mark.cluster
Scenario = Callable[[Kube], Awaitable[None]]


@pytest.fixture
def run(kinds_installed: ControlPlane) -> Callable[[Scenario], None]:
    """Runs a scenario with a client of the control plane."""

    def run(scenario: Scenario) -> None:
        async def with_client() -> None:
            async with Kube.connect(kinds_installed.kubeconfig) as kube:
                await scenario(kube)

        asyncio.run(with_client())

    return run


def dataflow(name: str) -> Body:
    return {"metadata": {"name": name}, "spec": {"instance": "default", "sql": "SELECT 1 AS a", "index": {}}}


def test_must_each_operator_leads_under_a_higher_term(run: Callable[[Scenario], None], namespace: str) -> None:
    """One after the other, and both at once; a term that replicas know is surpassed, if nobody else leads."""

    async def scenario(kube: Kube) -> None:
        first, second = (Leadership(kube, namespace, name) for name in ("first", "second"))
        assert await first.claim() == 1
        assert await second.claim() == 2
        assert sorted(await asyncio.gather(first.claim(), second.claim())) == [3, 4]
        leader, other = (first, second) if first.term > second.term else (second, first)

        assert await leader.outranked(by=7) == 8
        with pytest.raises(LeadershipLost, match="under term 8"):
            await other.outranked(by=8)

    run(scenario)


def test_crash_a_deleted_lease_is_made_again_above_the_terms_of_replicas(
    run: Callable[[Scenario], None], namespace: str
) -> None:
    """The next operator counts from one; a replica that was served under 3 refuses it, so it leads under 4. The one
    that led under 3 is refused now, and ends."""

    async def scenario(kube: Kube) -> None:
        before, after = (Leadership(kube, namespace, name) for name in ("before", "after"))
        assert [await before.claim() for _ in range(3)] == [1, 2, 3]
        lease = await kube.get(LEASES, namespace, LEASE)
        assert lease is not None
        await kube.delete(LEASES, namespace, LEASE, lease["metadata"]["uid"])
        assert await after.claim() == 1

        assert await after.outranked(by=3) == 4
        with pytest.raises(LeadershipLost, match="after leads under term 4, this process under 3"):
            await before.outranked(by=4)

    run(scenario)


def test_must_not_raise_the_term_for_one_that_no_operator_can_have_come_to(
    run: Callable[[Scenario], None], namespace: str
) -> None:
    """A replica that lies would use up what there is of terms, and nobody could lead any more. Nor step by step."""

    async def scenario(kube: Kube) -> None:
        leader, most = Leadership(kube, namespace, "leader"), leadership.MOST_FORGOTTEN_TERMS
        assert await leader.claim() == 1
        with pytest.raises(OperatorError, match=f"term {2**31 - 2}.*Restart the replica"):
            await leader.outranked(by=2**31 - 2)
        assert leader.term == 1
        assert await leader.outranked(by=most) == most + 1
        with pytest.raises(OperatorError, match="which is impossible"):
            await leader.outranked(by=2 * most)
        assert await Leadership(kube, namespace, "next").claim() == most + 2

    run(scenario)


def test_must_an_operator_that_was_replaced_finds_out_by_itself(
    run: Callable[[Scenario], None], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no replica to refuse it. As long as it leads it goes on, and makes the Lease anew."""
    monkeypatch.setattr(leadership, "RENEW_SECONDS", 0.05)

    async def scenario(kube: Kube) -> None:
        before, after = (Leadership(kube, namespace, name) for name in ("before", "after"))
        await before.claim()
        keeping = asyncio.create_task(before.keep())
        first = await kube.get(LEASES, namespace, LEASE)
        assert first is not None
        await kube.delete(LEASES, namespace, LEASE, first["metadata"]["uid"])
        async with asyncio.timeout(BOUND):
            while await kube.get(LEASES, namespace, LEASE) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not keeping.done()
        await after.claim(above=before.term)
        with pytest.raises(LeadershipLost, match="after leads under term 2, this process under 1"):
            await asyncio.wait_for(keeping, BOUND)

    run(scenario)


def test_crash_a_revision_stored_twice_is_one(run: Callable[[Scenario], None], namespace: str) -> None:
    """Repeated after a crash it is found; another plan under the same number is a conflict; old ones are pruned."""

    async def scenario(kube: Kube) -> None:
        meta = Meta.parse(await kube.create(DATAFLOWS, namespace, dataflow("d")))
        owner, revisions = RevisionOwner(DATAFLOWS.api_version, DATAFLOWS.kind, meta), Revisions(kube)
        name = await revisions.store(owner, 1, revision())

        assert await revisions.store(owner, 1, revision()) == name
        assert await revisions.load(namespace, name, DataflowRevision) == revision()
        async with revisions.listed():
            assert await revisions.load(namespace, name, DataflowRevision) == revision()
            assert await revisions.load(namespace, "another", DataflowRevision) is None
        with pytest.raises(Conflict):
            await revisions.store(owner, 1, "another plan")
        newer = await revisions.store(owner, 2, revision())
        assert [parse_revision(b, DataflowRevision) for b in await revisions.of(meta)] == [revision(), revision()]
        await revisions.prune(meta, keep={name})
        assert [b["metadata"]["name"] for b in await revisions.of(meta)] == [name, newer], "the newest stays"
        await revisions.prune(meta, keep=set())
        assert [b["metadata"]["name"] for b in await revisions.of(meta)] == [newer]

    run(scenario)


def test_crash_a_plan_that_an_operator_which_was_replaced_stored_last_is_found(
    run: Callable[[Scenario], None], namespace: str
) -> None:
    """The leader asks only once for the stored plans. One that another operator had on its way then shows when its name
    is taken."""

    async def scenario(kube: Kube) -> None:
        meta = Meta.parse(await kube.create(DATAFLOWS, namespace, dataflow("d")))
        old = Meta.parse(await kube.create(DATAFLOWS, namespace, dataflow("old")))
        owner, replaced, leads = (
            RevisionOwner(DATAFLOWS.api_version, DATAFLOWS.kind, meta),
            Revisions(kube),
            Revisions(kube),
        )
        await replaced.store(replace(owner, meta=old), 1, revision())
        async with leads.listed():
            assert len(await leads.of(old)) == 1
        await replaced.store(owner, 1, revision())

        assert await leads.of(meta) == [], "it was listed before"
        with pytest.raises(Conflict):
            await leads.store(owner, 1, "another plan")
        assert [parse_revision(body, DataflowRevision) for body in await leads.of(meta)] == [revision()]
        assert len(await leads.of(old)) == 1

    run(scenario)


def test_stored_plans_of_objects_without_one_are_listed_once_one_is_stored_or_read(
    run: Callable[[Scenario], None], namespace: str
) -> None:
    """The plans are gone with their owner."""

    async def scenario(kube: Kube) -> None:
        first = Meta.parse(await kube.create(DATAFLOWS, namespace, dataflow("first")))
        other = Meta.parse(await kube.create(DATAFLOWS, namespace, dataflow("other")))
        revisions = Revisions(kube)
        async with revisions.listed():
            pass
        for meta in (first, other):
            assert await revisions.of(meta) == []
            by = revisions if meta is first else Revisions(kube)
            name = await by.store(RevisionOwner(DATAFLOWS.api_version, DATAFLOWS.kind, meta), 1, revision())
            assert await revisions.load(namespace, name, DataflowRevision) == revision()
            assert [body["metadata"]["name"] for body in await revisions.of(meta)] == [name]
            revisions.forget(meta.uid)
            assert await revisions.of(meta) == []

    run(scenario)


def test_a_finalizer_comes_and_goes_whatever_else_changes(run: Callable[[Scenario], None], namespace: str) -> None:
    """From a stale cache, too; and an object that is being deleted takes no new one."""

    async def scenario(kube: Kube) -> None:
        cache = Cache()
        body = await kube.create(DATAFLOWS, namespace, dataflow("d"))
        key = key_of(DATAFLOWS, body)
        cache.put(key, body)
        await kube.patch(DATAFLOWS, namespace, "d", {"metadata": {"labels": {"a": "b"}}})

        assert await set_finalizer(kube, cache, key, wanted=True)
        await kube.delete(DATAFLOWS, namespace, "d", body["metadata"]["uid"])
        deleting = await kube.get(DATAFLOWS, namespace, "d")
        assert deleting is not None
        assert deleting["metadata"]["finalizers"] == [FINALIZER]
        cache.put(key, deleting)
        assert await set_finalizer(kube, cache, key, wanted=False)

        assert await kube.get(DATAFLOWS, namespace, "d") is None
        assert not await set_finalizer(kube, Cache(), key, wanted=True)

    run(scenario)


def test_a_status_is_written_to_this_very_object(run: Callable[[Scenario], None], namespace: str) -> None:
    """Also when it was edited meanwhile; not to a later one of the same name; and nothing that the schema refuses."""

    async def scenario(kube: Kube) -> None:
        cache = Cache()
        publisher = StatusPublisher(kube, cache, lambda key, body: None, lambda key, body: True)
        body = await kube.create(DATAFLOWS, namespace, dataflow("d"))
        key, uid = key_of(DATAFLOWS, body), body["metadata"]["uid"]
        cache.put(key, body)
        await kube.patch(DATAFLOWS, namespace, "d", {"metadata": {"labels": {"a": "b"}}})

        await publisher.store(key, {"observedGeneration": 1}, uid)
        written = cache.get(key)
        assert written is not None
        assert (written["status"], written["metadata"]["labels"]) == ({"observedGeneration": 1}, {"a": "b"})
        with pytest.raises(Invalid):
            await publisher.store(key, {"observedGeneration": "one"}, uid)
        await kube.delete(DATAFLOWS, namespace, "d", uid)
        await kube.create(DATAFLOWS, namespace, dataflow("d"))
        with pytest.raises(Conflict, match="was replaced by another object of its name"):
            await publisher.store(key, {"observedGeneration": 1}, uid)

    run(scenario)


def test_steps_that_follow_at_once_are_one_write(run: Callable[[Scenario], None], namespace: str) -> None:
    """After a mark, what is on its way waits, and what has arrived does not; and nothing is written twice."""

    async def scenario(kube: Kube) -> None:
        clock, cache, written = [100.0], Cache(), list[str]()
        shown = [no("Ready", "Hydrating"), yes("Progressing", "Hydrating")]

        def build(key: Key, body: Body) -> Body:
            old = (body.get("status") or {}).get("conditions") or []
            return {"observedGeneration": 1, "conditions": merge_conditions(old, shown, 1, 0)}

        async def ready() -> str:
            body = await kube.get(DATAFLOWS, namespace, "d")
            assert body is not None
            written.append(body["metadata"]["resourceVersion"])
            return "".join(c["reason"] for c in body["status"].get("conditions") or () if c["type"] == "Ready")

        publisher = StatusPublisher(kube, cache, build, lambda key, body: True)
        cast(Any, publisher)._now = lambda: clock[0]
        body = await kube.create(DATAFLOWS, namespace, dataflow("d"))
        key = key_of(DATAFLOWS, body)
        cache.put(key, body)
        await publisher.store(key, {"pending": None}, body["metadata"]["uid"])
        await publisher.publish(key)
        await publisher._publish_due()
        assert await ready() == ""

        clock[0] += PAUSE_SECONDS
        await publisher._publish_due()
        assert await ready() == "Hydrating"
        shown[0] = no("Ready", "WaitingForInputs")
        await publisher.publish(key)
        assert await ready() == "Hydrating"
        shown[:] = [yes("Ready", "Ready"), no("Progressing", "UpToDate")]
        publisher.announce(key)
        await asyncio.gather(publisher._publish_due(), publisher.publish(key), publisher.publish(key))
        assert publisher._announced, "who came second looks again"
        assert await ready() == "Ready"

        for seconds in (0.0, PAUSE_SECONDS):
            clock[0] += seconds
            await publisher.publish(key)
            await publisher._publish_due()
            await ready()
        assert len(set(written[-3:])) == 1
        assert len(set(written)) == 3

    run(scenario)


def test_lists_come_whole_though_page_by_page(
    run: Callable[[Scenario], None], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their kind, which the items of a list do not say."""
    monkeypatch.setattr("tidemark_operator.kube.client.PAGE", 2)

    async def scenario(kube: Kube) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await kube.create(DATAFLOWS, namespace, dataflow(name))
        bodies = await kube.list(DATAFLOWS, namespace=namespace)

        assert [b["metadata"]["name"] for b in bodies] == ["a", "b", "c", "d", "e"]
        assert {b["kind"] for b in bodies} == {"Dataflow"}
        assert {key_of(DATAFLOWS, b).namespace for b in await kube.list(DATAFLOWS)} >= {namespace}

    run(scenario)


def test_an_event_is_said_once(run: Callable[[Scenario], None], namespace: str) -> None:
    """By this process, and by the next one that finds the same."""

    async def scenario(kube: Kube) -> None:
        key = Key(DATAFLOWS, namespace, "d")
        for _ in range(2):
            events = Events(kube, "reporter")
            for note in ("column a is unknown", "column a is unknown", "column b is unknown"):
                await events.warn(key, "uid", "UnresolvedColumn", note)

        notes = [e["note"] for e in await kube.list(EVENTS, namespace=namespace)]
        assert sorted(notes) == ["column a is unknown", "column b is unknown"]

    run(scenario)


def test_a_revision_that_begins_to_serve_is_one_event(run: Callable[[Scenario], None], namespace: str) -> None:
    """Not one for each status, nor one more from the next operator; the next revision has its own."""

    async def scenario(kube: Kube) -> None:
        body = await kube.create(DATAFLOWS, namespace, dataflow("d"))
        key = key_of(DATAFLOWS, body)
        first, second = (yes("Ready", "Ready", f"revision {name} serves reads") for name in ("d-1", "d-2"))
        steps = [("d-1", no("Ready", "Hydrating")), ("d-1", first), ("d-1", no("Ready", "Suspended"))]
        edit = [("d-1", yes("Ready", "Ready", "revision d-1, of the spec before the edit, serves")), ("d-2", first)]
        for name, shown in [*steps, *steps, *edit, ("d-2", second)]:
            document = {"revision": {"name": name}, "conditions": merge_conditions((), [shown], 1, 0)}
            await note_ready(Events(kube, "reporter"), key, body, document)
            body = {**body, "status": document}

        written = await kube.list(EVENTS, namespace=namespace)
        assert sorted((e["type"], e["reason"], e["note"]) for e in written) == [
            ("Normal", "Ready", "revision d-1 serves reads"),
            ("Normal", "Ready", "revision d-2 serves reads"),
        ]

    run(scenario)
