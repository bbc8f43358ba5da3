"""Every holder has a certificate in time: issued once, renewed when due, despite other writers and deletions."""

from __future__ import annotations

import asyncio

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.certificates.samples import (
    R1,
    R1_PLACE,
    R2,
    R2_PLACE,
    START_MS,
    Clock,
    MemoryStore,
)
from tidemark_operator.certificates import certificate_state as leaves
from tidemark_operator.certificates.authority import AuthorityStep, from_files
from tidemark_operator.certificates.certificate_rotation import LOOK_SECONDS, CertificateRotation
from tidemark_operator.certificates.issue import is_signed_by, subject_uri, validity
from tidemark_operator.certificates.names import AUTHORITY
from tidemark_operator.certificates.store import Files, SecretLocation, StoredFiles, WriteConflict
from tidemark_operator.errors import CertificateRefused, OperatorError
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import OPERATOR, replica_identity

AT_AUTHORITY = ("", AUTHORITY)


def stored_files(store: MemoryStore, place: SecretLocation) -> Material:
    found = leaves.from_files(store.kept[place.key].bag)
    assert found is not None
    return found


async def started(store: MemoryStore, clock: Clock) -> CertificateRotation:
    keeper = CertificateRotation(store, clock)
    await keeper.start()
    return keeper


def test_the_authority_is_made_once() -> None:
    """A second operator, and one that starts again, go on with it."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        await started(store, clock)
        made = store.kept[AT_AUTHORITY]
        await started(store, clock)
        assert store.kept[AT_AUTHORITY] == made

    asyncio.run(scenario())


def test_of_two_operators_that_make_the_authority_at_once_one_does() -> None:
    """Both looked, and found none; who comes second takes what the first has made."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        others: list[CertificateRotation] = []

        def meanwhile(place: SecretLocation) -> None:
            store.before = lambda _: None
            other = CertificateRotation(store, clock)
            # a coroutine that waits for nothing ends at its first step
            with pytest.raises(StopIteration):
                other.start().send(None)
            others.append(other)

        store.before = meanwhile
        keeper = await started(store, clock)
        assert keeper.material().authorities == others[0].material().authorities
        assert store.writes == 1

    asyncio.run(scenario())


def test_a_holder_has_its_certificate_when_hold_returns_and_it_is_not_issued_again() -> None:
    """By this operator or the next."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        await keeper.hold(R1_PLACE, R1)
        leaf = stored_files(store, R1_PLACE)
        assert subject_uri(leaf.certificate) == R1.uri
        assert leaf.authorities == keeper.material().authorities
        for again in (keeper, await started(store, clock)):
            await again.hold(R1_PLACE, R1)
            await again.look()
        assert stored_files(store, R1_PLACE) == leaf

    asyncio.run(scenario())


def test_a_replica_made_again_under_its_name_gets_a_certificate_of_its_own() -> None:
    """The earlier one's does not say who it is."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        await keeper.hold(R1_PLACE, R1)
        later = replica_identity("team-a", "r1", "9999")
        await keeper.hold(R1_PLACE, later)
        assert subject_uri(stored_files(store, R1_PLACE).certificate) == later.uri

    asyncio.run(scenario())


def test_all_are_renewed_when_it_is_time_and_nothing_is_written_before() -> None:
    """The operator's own, too, which is kept nowhere."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        for place, identity in ((R1_PLACE, R1), (R2_PLACE, R2)):
            await keeper.hold(place, identity)
        own, first, writes = keeper.material(), stored_files(store, R1_PLACE), store.writes
        clock.forward(days=19.9)
        await keeper.look()
        assert store.writes == writes
        assert keeper.material() == own
        clock.forward(days=0.1)
        await keeper.look()
        assert store.writes == writes + 2
        assert stored_files(store, R1_PLACE) != first
        assert keeper.material() != own
        assert subject_uri(keeper.material().certificate) == OPERATOR.uri
        assert OPERATOR.uri not in {subject_uri(leaf.certificate) for leaf in leaves_in(store)}

    asyncio.run(scenario())


def leaves_in(store: MemoryStore) -> list[Material]:
    found = [leaves.from_files(kept.bag) for kept in store.kept.values()]
    return [leaf for leaf in found if leaf is not None]


def test_the_operators_own_is_renewed_though_nothing_can_be_kept() -> None:
    """An API server that is away for weeks ends no connection to replicas that are there."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        clock.forward(days=40)
        assert validity(keeper.material().certificate).is_fresh(clock())

    asyncio.run(scenario())


def test_a_deleted_certificate_is_issued_again() -> None:
    """It is looked for now and then, though nothing is due."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        await keeper.hold(R1_PLACE, R1)
        del store.kept[R1_PLACE.key]
        await keeper.look()
        assert R1_PLACE.key not in store.kept
        clock.forward(days=1 / 24)
        await keeper.look()
        assert subject_uri(stored_files(store, R1_PLACE).certificate) == R1.uri

    asyncio.run(scenario())


def test_a_deleted_authority_is_made_again_and_issues_all_certificates() -> None:
    """The way to a new one, for who fears that the old one's key is known."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        await keeper.hold(R1_PLACE, R1)
        del store.kept[AT_AUTHORITY]
        await keeper.look()
        signer = from_files(store.kept[AT_AUTHORITY].bag).signer.certificate
        assert is_signed_by(stored_files(store, R1_PLACE).certificate, signer)
        assert keeper.material().authorities == signer == stored_files(store, R1_PLACE).authorities

    asyncio.run(scenario())


def test_an_authority_that_cannot_be_read_stops_the_operator_and_is_not_replaced() -> None:
    """All trust the one that was."""

    async def scenario() -> None:
        store = MemoryStore()
        store.kept[AT_AUTHORITY] = StoredFiles({"format": b"99"}, "1")
        with pytest.raises(CertificateRefused, match="has format '99'"):
            await started(store, Clock())
        assert store.writes == 0

    asyncio.run(scenario())


def test_a_certificate_that_another_operator_wrote_meanwhile_is_taken() -> None:
    """Two operators, the former and the next, for a moment."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper, other = await started(store, clock), await started(store, clock)

        def meanwhile(place: SecretLocation) -> None:
            store.before = lambda _: None
            with pytest.raises(StopIteration):
                other.hold(place, R1).send(None)

        store.before = meanwhile
        writes = store.writes
        await keeper.hold(R1_PLACE, R1)
        assert store.writes == writes + 1

    asyncio.run(scenario())


def test_a_place_that_others_write_again_and_again_is_left_for_later() -> None:
    """Not fought for without end."""

    class Contested(MemoryStore):
        tries = 0

        async def write(self, place: SecretLocation, bag: Files, kept: StoredFiles | None) -> None:
            if place.key == R1_PLACE.key:
                self.tries += 1
                raise WriteConflict("again")
            await super().write(place, bag, kept)

    async def scenario() -> None:
        store = Contested()
        keeper = await started(store, Clock())
        with pytest.raises(OperatorError, match="other writers change it"):
            await keeper.hold(R1_PLACE, R1)
        assert store.tries == 5

    asyncio.run(scenario())


def test_one_place_that_cannot_be_used_keeps_no_other_from_a_renewal() -> None:
    """A Secret of somebody else's is in the way of one replica."""

    class Foreign(MemoryStore):
        async def load(self, place: SecretLocation) -> StoredFiles | None:
            if place.key == R1_PLACE.key:
                raise CertificateRefused("it is somebody else's")
            return await super().load(place)

    async def scenario() -> None:
        store, clock = Foreign(), Clock()
        keeper = await started(store, clock)
        with pytest.raises(CertificateRefused):
            await keeper.hold(R1_PLACE, R1)
        await keeper.hold(R2_PLACE, R2)
        first = stored_files(store, R2_PLACE)
        clock.forward(days=21)
        await keeper.look()
        assert stored_files(store, R2_PLACE) != first

    asyncio.run(scenario())


def test_the_authority_waits_for_a_holder_with_an_unwritable_certificate() -> None:
    """It would meet a signer that it was never told of."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        await keeper.hold(R1_PLACE, R1)
        await keeper.hold(R2_PLACE, R2)

        def refuse(place: SecretLocation) -> None:
            if place == R1_PLACE:
                raise OperatorError("403 Forbidden")

        store.before = refuse
        clock.forward(days=250)
        for _ in range(5):
            await keeper.look()
            clock.forward(days=1)
        assert keeper._current.authority.step is AuthorityStep.INTRODUCING
        store.before = lambda _: None
        for _ in range(5):
            await keeper.look()
            clock.forward(days=1)
        assert keeper._current.authority.step is AuthorityStep.STEADY

    asyncio.run(scenario())


def test_a_released_certificate_is_not_renewed() -> None:
    """The certificate goes with its owner."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock(START_MS)
        keeper = await started(store, clock)
        await keeper.hold(R1_PLACE, R1)
        await keeper.hold(R2_PLACE, R2)
        keeper.retain({R2_PLACE.key})
        first = stored_files(store, R1_PLACE)
        clock.forward(days=21)
        await keeper.look()
        assert stored_files(store, R1_PLACE) == first

    asyncio.run(scenario())


def test_it_looks_often_enough() -> None:
    """A certificate that is renewed at two thirds of 30 days has 10 days for it."""
    assert LOOK_SECONDS < 3600


def test_the_gateways_certificate_is_in_memory_and_follows_the_authority() -> None:
    """For the names it is called by; the same one until it is due, and nothing of it is written."""

    async def scenario() -> None:
        store, clock = MemoryStore(), Clock()
        keeper = await started(store, clock)
        first = keeper.serving(("gateway.ns.svc",))
        names = x509.load_pem_x509_certificate(first.certificate).extensions
        alternatives = names.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.DNSName) == ["gateway.tidemark.internal", "gateway.ns.svc"]
        uses = names.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
        assert keeper.serving(("gateway.ns.svc",)) == first
        assert keeper.material() != first
        assert set(store.kept) == {AT_AUTHORITY}
        clock.forward(20)
        renewed = keeper.serving(("gateway.ns.svc",))
        assert renewed.certificate != first.certificate
        assert renewed.authorities == first.authorities

    asyncio.run(scenario())
