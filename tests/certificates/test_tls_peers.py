"""TlsPeers: the ComputeReplicas with a certificate, those without one and why, and Secrets that no object needs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from tests.certificates.samples import Clock, MemoryStore
from tidemark_operator.certificates.certificate_rotation import CertificateRotation
from tidemark_operator.certificates.channel_factory import PLAIN_CHANNELS
from tidemark_operator.certificates.names import AUTHORITY, PLANNER, replica_secret
from tidemark_operator.certificates.peers import SocketPeers
from tidemark_operator.certificates.store import SecretLocation, StoredFiles
from tidemark_operator.certificates.tls_peers import TlsPeers, identity_of, location_of
from tidemark_operator.errors import CertificateRefused
from tidemark_operator.kube import startup_retry
from tidemark_operator.kube.client import ApiError
from tidemark_operator.resources.manifest.meta import Meta, Namespace, Uid
from tidemark_protocol.tls.identities import PLANNER as THE_PLANNER


def meta(name: str, uid: str, resource_version: str = "1") -> Meta:
    return Meta(Namespace("team-a"), name, Uid(uid), 1, resource_version, False, ())


ONE, TWO = meta("r1", "1111"), meta("r2", "2222")


class Foreign(MemoryStore):
    """A Secret of somebody else's is where the first replica's should be, until it is removed."""

    removed = False

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        if place.name == replica_secret("r1") and not self.removed:
            raise CertificateRefused("it is in the way")
        return await super().load(place)


def test_at_its_start_there_is_an_authority_and_a_certificate_of_the_planners() -> None:
    """Nothing else is known yet."""
    store = MemoryStore()
    asyncio.run(TlsPeers.start(store))
    assert set(store.kept) == {("", AUTHORITY), ("", PLANNER)}


class Stumbling(MemoryStore):
    """Answers with an error, so many times."""

    def __init__(self, status: int, times: int) -> None:
        super().__init__()
        self.status, self.left = status, times

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        if self.left:
            self.left -= 1
            raise ApiError(self.status, "no")
        return await super().load(place)


@pytest.mark.parametrize("status", [0, 429, 503])
def test_an_api_server_that_stumbles_at_the_start_is_asked_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Nothing is made twice; and not without an end."""
    monkeypatch.setattr(startup_retry, "RETRY_SECONDS", 0)
    store = Stumbling(status, 3)
    asyncio.run(TlsPeers.start(store))
    assert store.writes == 2
    with pytest.raises(ApiError):
        asyncio.run(TlsPeers.start(Stumbling(status, startup_retry.TRIES)))


def test_an_api_server_that_refuses_at_the_start_is_not_asked_again() -> None:
    """The rights are missing: somebody must see it."""
    store = Stumbling(403, 1)
    with pytest.raises(ApiError):
        asyncio.run(TlsPeers.start(store))
    assert store.left == 0
    assert store.writes == 0


def test_a_replica_is_prepared_once_it_has_a_certificate_until_it_is_not_retained() -> None:
    """One that is suspended and comes back is prepared anew: its certificate may be old by then."""

    async def scenario() -> None:
        peers = await TlsPeers.start(MemoryStore())
        assert not peers.is_prepared(ONE)
        await peers.prepare(ONE)
        await peers.prepare(TWO)
        peers.retain([ONE, TWO])
        assert peers.is_prepared(ONE)
        peers.retain([TWO])
        assert not peers.is_prepared(ONE)
        assert peers.is_prepared(TWO)
        assert not peers.is_prepared(meta("r2", "9999"))

    asyncio.run(scenario())


def test_a_replica_that_cannot_be_prepared_says_why_until_it_can() -> None:
    """For its condition; others go on."""

    async def scenario() -> None:
        store = Foreign()
        peers = await TlsPeers.start(store)
        with pytest.raises(CertificateRefused):
            await peers.prepare(ONE)
        await peers.prepare(TWO)
        assert (peers.refusal(ONE), peers.refusal(TWO)) == ("it is in the way", "")
        assert not peers.is_prepared(ONE)
        store.removed = True
        await peers.prepare(ONE)
        assert peers.refusal(ONE) == ""
        assert peers.is_prepared(ONE)

    asyncio.run(scenario())


def test_unneeded_certificates_are_released_once() -> None:
    """Not at every look; another resource version is the same replica."""
    retained: list[set[str]] = []

    def forget(places: Collection[SecretLocation]) -> None:
        retained.append({place.name for place in places})

    async def scenario() -> None:
        peers = await TlsPeers.start(MemoryStore(), forget)
        for retained in ([ONE, TWO], [meta("r1", "1111", "7"), TWO], [TWO], [TWO]):
            peers.retain(retained)

    asyncio.run(scenario())
    assert retained == [{location_of(ONE).name, location_of(TWO).name}, {location_of(TWO).name}]


def test_the_planners_certificate_is_renewed_whatever_replicas_there_are() -> None:
    """It belongs to none."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = CertificateRotation(store, clock)
        await keeper.start()
        await keeper.hold(SecretLocation(PLANNER), THE_PLANNER)
        TlsPeers(keeper).retain([])
        first = store.kept["", PLANNER]
        clock.forward(days=21)
        await keeper.look()
        assert store.kept["", PLANNER] != first

    asyncio.run(scenario())


def test_dialers_are_equal_for_the_same_peer_and_for_no_other() -> None:
    """A connection is made anew where they are not."""

    async def scenario() -> None:
        peers = await TlsPeers.start(MemoryStore())
        assert peers.dialer(identity_of(ONE)) == peers.dialer(identity_of(meta("r1", "1111", "7")))
        assert peers.dialer(identity_of(ONE)) != peers.dialer(identity_of(meta("r1", "9999")))
        assert peers.dialer(identity_of(ONE)) != PLAIN_CHANNELS

    asyncio.run(scenario())
    assert SocketPeers().dialer(identity_of(ONE)) == SocketPeers().dialer(identity_of(TWO)) == PLAIN_CHANNELS
