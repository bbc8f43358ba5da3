"""Certificates as Secrets of a real API server: made once, deleted with their owner, never in place of a foreign
Secret."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.certificates.samples import START_MS, Clock
from tests.waiting import until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.certificates import certificate_state as leaves
from tidemark_operator.certificates.authority import AuthorityStep
from tidemark_operator.certificates.certificate_rotation import CertificateRotation
from tidemark_operator.certificates.issue import is_signed_by, subject_uri
from tidemark_operator.certificates.names import AUTHORITY, MANAGED_LABEL, PLANNER, replica_secret
from tidemark_operator.certificates.secrets import SecretStore, build_secret
from tidemark_operator.certificates.store import SecretLocation, WriteConflict
from tidemark_operator.certificates.tls_peers import TlsPeers, identity_of, location_of
from tidemark_operator.errors import CertificateRefused
from tidemark_operator.kube.client import LEASES, REPLICAS, SECRETS, ApiError, Kube
from tidemark_operator.kube.leadership import LEASE
from tidemark_operator.resources.manifest.meta import Meta

pytestmark = pytest.mark.cluster
Scenario = Callable[[Kube, Kube], Awaitable[None]]


@pytest.fixture
def run(kinds_installed: ControlPlane) -> Callable[[Scenario], None]:
    """Runs a scenario with two clients of the control plane, as two operators have."""

    def run(scenario: Scenario) -> None:
        async def with_clients() -> None:
            config = kinds_installed.kubeconfig
            async with Kube.connect(config) as one, Kube.connect(config) as other:
                await scenario(one, other)

        asyncio.run(with_clients())

    return run


async def replica(kube: Kube, namespace: str, name: str = "r1") -> Meta:
    limits = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    body = {"metadata": {"name": name}, "spec": {"instance": "default", **limits}}
    return Meta.parse(await kube.create(REPLICAS, namespace, body))


async def started(kube: Kube, namespace: str, clock: Clock) -> CertificateRotation:
    keeper = CertificateRotation(SecretStore(kube, namespace), clock)
    await keeper.start()
    return keeper


async def held(kube: Kube, namespace: str, meta: Meta) -> None:
    keeper = await started(kube, namespace, Clock())
    await keeper.hold(location_of(meta), identity_of(meta))


def secret(plane: ControlPlane, namespace: str, name: str) -> str:
    return plane.kubectl("-n", namespace, "get", "secret", name, "-o", "yaml", "--ignore-not-found")


def test_of_two_operators_that_start_at_once_one_makes_the_authority(
    run: Callable[[Scenario], None], namespace: str
) -> None:
    """And one the certificate of a replica: the API server settles it."""

    async def scenario(one: Kube, other: Kube) -> None:
        clock = Clock()
        meta = await replica(one, namespace)
        first, second = await asyncio.gather(*(started(kube, namespace, clock) for kube in (one, other)))
        assert first.material().authorities == second.material().authorities
        place, identity = location_of(meta), identity_of(meta)
        await asyncio.gather(first.hold(place, identity), second.hold(place, identity))
        body = await one.get(SECRETS, namespace, replica_secret("r1"))
        assert body is not None
        assert body["type"] == "kubernetes.io/tls"
        assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == [meta.uid]
        certificate = base64.b64decode(body["data"]["tls.crt"])
        assert subject_uri(certificate) == identity.uri
        assert is_signed_by(certificate, first.material().authorities)
        for keeper in (first, second):
            await keeper.look()
        again = await one.get(SECRETS, namespace, replica_secret("r1"))
        assert again is not None
        assert again["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]

    run(scenario)


def test_an_authority_hands_over_while_two_operators_look_at_it(
    run: Callable[[Scenario], None], namespace: str
) -> None:
    """Each writes by what it has read, so no step is taken twice."""

    async def scenario(one: Kube, other: Kube) -> None:
        clock = Clock()
        meta = await replica(one, namespace)
        keepers = [await started(kube, namespace, clock) for kube in (one, other)]
        for keeper in keepers:
            await keeper.hold(location_of(meta), identity_of(meta))
        before, steps = keepers[0].material().authorities, []
        clock.forward(days=244)
        for _ in range(4):
            await asyncio.gather(*(keeper.look() for keeper in keepers))
            for keeper in keepers:
                await keeper.look()
            steps.append(keepers[0]._current.authority.step)
            clock.forward(days=1 / 12)
        assert steps == [AuthorityStep.INTRODUCING, AuthorityStep.REPLACING, AuthorityStep.STEADY, AuthorityStep.STEADY]
        assert keepers[0].material().authorities == keepers[1].material().authorities != before
        kept = await SecretStore(one, namespace).load(location_of(meta))
        leaf = leaves.from_files(kept.bag) if kept else None
        assert leaf is not None
        assert leaf.authorities == keepers[0].material().authorities

    run(scenario)


def test_a_secret_goes_with_its_replica_and_the_next_one_of_the_name_has_its_own(
    run: Callable[[Scenario], None], namespace: str, kinds_installed: ControlPlane
) -> None:
    """Whether the former's is collected before the next one comes, or after."""

    async def scenario(one: Kube, other: Kube) -> None:
        keeper = await started(one, namespace, Clock())
        first = await replica(one, namespace)
        await keeper.hold(location_of(first), identity_of(first))
        await one.delete(REPLICAS, namespace, "r1", first.uid)
        second = await replica(one, namespace)
        await keeper.hold(location_of(second), identity_of(second))
        body = await one.get(SECRETS, namespace, replica_secret("r1"))
        assert body is not None
        assert subject_uri(base64.b64decode(body["data"]["tls.crt"])) == identity_of(second).uri
        assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == [second.uid]
        await one.delete(REPLICAS, namespace, "r1", second.uid)
        until(lambda: not secret(kinds_installed, namespace, replica_secret("r1")))

    run(scenario)


def test_the_operators_own_go_with_its_lease(
    run: Callable[[Scenario], None], namespace: str, kinds_installed: ControlPlane
) -> None:
    """The chart makes the Lease, and takes it away: nothing is left of what was installed."""

    async def scenario(one: Kube, other: Kube) -> None:
        lease = await one.create(LEASES, namespace, {"metadata": {"name": LEASE}, "spec": {}})
        await TlsPeers.start(SecretStore(one, namespace))
        uid = lease["metadata"]["uid"]
        for name in (AUTHORITY, PLANNER):
            body = await one.get(SECRETS, namespace, name)
            assert body is not None
            assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == [uid]
        await one.delete(LEASES, namespace, LEASE, uid)

    run(scenario)
    for name in (AUTHORITY, PLANNER):
        until(lambda name=name: not secret(kinds_installed, namespace, name))


@pytest.mark.parametrize("name", [AUTHORITY, replica_secret("r1")])
def test_a_secret_of_another_is_refused_and_left_as_it_is(
    run: Callable[[Scenario], None], namespace: str, kinds_installed: ControlPlane, name: str
) -> None:
    """It may be the only copy of something."""
    kinds_installed.kubectl("-n", namespace, "create", "secret", "generic", name, "--from-literal=tls.key=hunter2")
    before = secret(kinds_installed, namespace, name)

    async def scenario(one: Kube, other: Kube) -> None:
        meta = await replica(one, namespace)
        with pytest.raises(CertificateRefused, match=f"{namespace}/{name} was not created by the operator") as refused:
            await held(one, namespace, meta)
        assert "hunter2" not in str(refused.value)

    run(scenario)
    assert secret(kinds_installed, namespace, name) == before


def test_a_write_over_an_unread_version_is_a_conflict(run: Callable[[Scenario], None], namespace: str) -> None:
    """Somebody changed it, made it, or deleted it."""

    async def scenario(one: Kube, other: Kube) -> None:
        store, place = SecretStore(one, namespace), SecretLocation(AUTHORITY, mounted=False)
        await store.write(place, {"a": b"1"}, None)
        with pytest.raises(WriteConflict):
            await store.write(place, {"a": b"2"}, None)
        kept = await store.load(place)
        assert kept is not None
        await SecretStore(other, namespace).write(place, {"a": b"3"}, kept)
        with pytest.raises(WriteConflict):
            await store.write(place, {"a": b"4"}, kept)
        gone = SecretLocation("gone")
        with pytest.raises(WriteConflict):
            await store.write(gone, dict.fromkeys(("tls.crt", "tls.key"), b""), kept)

    run(scenario)


def test_a_refused_write_is_reported_without_its_contents(run: Callable[[Scenario], None], namespace: str) -> None:
    """Its answer repeats what it does not like."""
    hidden = base64.b64encode(b"hunter2").decode()

    async def scenario(one: Kube, other: Kube) -> None:
        body: dict[str, Any] = build_secret(SecretLocation("x", mounted=False), {}, None)
        for wrong in ({"data": {"not a key " + hidden: hidden}}, {"metadata": {"name": "x", "labels": {"a": hidden}}}):
            with pytest.raises(ApiError, match=f"Secret {namespace}/x: 422") as refused:
                await one.create(SECRETS, namespace, {**body, **wrong})
            assert hidden not in str(refused.value)

    run(scenario)


def test_events_and_statuses_never_have_anything_of_a_secret(
    run: Callable[[Scenario], None], namespace: str, kinds_installed: ControlPlane
) -> None:
    """Whoever may read all of our kinds learns no key."""

    async def scenario(one: Kube, other: Kube) -> None:
        keeper = await started(one, namespace, Clock(START_MS))
        meta = await replica(one, namespace)
        await keeper.hold(location_of(meta), identity_of(meta))

    run(scenario)
    for kinds in ("events", "computereplicas,computeinstances", "controllerrevisions,leases"):
        assert "PRIVATE" not in kinds_installed.kubectl("-n", namespace, "get", kinds, "-o", "yaml")
    assert MANAGED_LABEL in secret(kinds_installed, namespace, replica_secret("r1"))
