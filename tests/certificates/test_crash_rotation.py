"""The authority is replaced while operators die: at every moment all pairs of holders trust each other.

A mount has what its Secret had a moment ago, at any moment within the time that Kubernetes may take. So at every write
of a whole rotation the operator dies, just before it or just after, the next one goes on, and after each look all
pairs are tried: the operator against every state that a replica's folder may still have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates.samples import R1, R1_PLACE, R2, R2_PLACE, Clock, Died, MemoryStore
from tidemark_operator.certificates import certificate_state as leaves
from tidemark_operator.certificates.authority import AuthorityStep, from_files
from tidemark_operator.certificates.certificate_rotation import SPREAD_MS, CertificateRotation
from tidemark_operator.certificates.files import FolderStore
from tidemark_operator.certificates.issue import is_signed_by, validity
from tidemark_operator.certificates.names import AUTHORITY
from tidemark_operator.certificates.store import SecretLocation, Store
from tidemark_protocol.tls.folder import Material

PLACES = ((R1_PLACE, R1), (R2_PLACE, R2))
HOUR = 1 / 24


def certificates(bundle: bytes) -> list[bytes]:
    end = b"-----END CERTIFICATE-----\n"
    return [part + end for part in bundle.split(end) if part]


def trusts(bundle: bytes, shown: bytes) -> bool:
    return any(is_signed_by(shown, each) for each in certificates(bundle))


class Mounts:
    """The files of replicas: each Secret's content of now, and those that it had within the last hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._had: dict[SecretLocation, list[tuple[int, Material]]] = {place: [] for place, _ in PLACES}

    async def look(self, store: Store) -> None:
        for place, _ in PLACES:
            kept = await store.load(place)
            leaf = leaves.from_files(kept.bag) if kept else None
            if leaf is not None:
                self._had[place].append((self._clock(), leaf))

    def possible(self) -> Iterator[Material]:
        """The last one that is older than the time it takes, and all later ones."""
        for had in self._had.values():
            settled = [found for at, found in had if at <= self._clock() - SPREAD_MS]
            yield from settled[-1:] + [found for at, found in had if at > self._clock() - SPREAD_MS]

    def all_meet(self, operator: Material) -> bool:
        return all(
            trusts(mounted.authorities, operator.certificate) and trusts(operator.authorities, mounted.certificate)
            for mounted in self.possible()
        )


class System:
    """Two replicas, and operators one after the other, on the eve of a rotation."""

    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, Clock()
        self.mounts = Mounts(self.clock)
        self.operator: CertificateRotation | None = None

    async def grow_old(self) -> bytes:
        """Certificates are made, and renewed, until the authority is to hand over; the authority."""
        self.operator = CertificateRotation(self.store, self.clock)
        await self.operator.start()
        for _ in range(14):
            await self.live(self.operator)
            self.clock.forward(18)
        return self.operator.material().authorities

    async def live(self, operator: CertificateRotation) -> None:
        for place, identity in PLACES:
            await operator.hold(place, identity)
        await self.mounts.look(self.store)

    async def rotate(self) -> None:
        """To the end, an operator at a time, each until it dies."""
        steps: list[AuthorityStep] = []
        for _ in range(60):
            try:
                steps.append(await self.look())
            except Died:
                self.operator = None
            await self.mounts.look(self.store)
            assert self.operator is None or self.mounts.all_meet(self.operator.material())
            if steps[-1:] == [AuthorityStep.STEADY] and AuthorityStep.REPLACING in steps:
                return
            self.clock.forward(HOUR)
        raise AssertionError(f"the authority did not hand over: {steps}")

    async def look(self) -> AuthorityStep:
        if self.operator is None:
            # one that starts meets replicas as they are, before it has looked at anything
            self.operator = CertificateRotation(self.store, self.clock)
            await self.operator.start()
            assert self.mounts.all_meet(self.operator.material())
        await self.live(self.operator)
        await self.operator.look()
        return self.operator._current.authority.step

    async def check(self, before: bytes) -> None:
        """A new authority alone, and everybody has a fresh certificate of it."""
        kept = await self.store.load(SecretLocation(AUTHORITY, mounted=False))
        assert kept is not None
        after = from_files(kept.bag)
        assert after.bundle == after.signer.certificate != before
        for place, _ in PLACES:
            there = await self.store.load(place)
            leaf = leaves.from_files(there.bag) if there else None
            assert leaf is not None
            assert leaf.authorities == after.bundle
            assert is_signed_by(leaf.certificate, after.signer.certificate)
            assert validity(leaf.certificate).is_fresh(self.clock())


async def rotated(store: Store) -> None:
    system = System(store)
    before = await system.grow_old()
    await system.rotate()
    await system.check(before)


def test_a_rotation_ends_with_a_new_authority_alone() -> None:
    """With nobody dying."""
    asyncio.run(rotated(MemoryStore()))


def test_a_rotation_is_the_same_in_files(tmp_path: Path) -> None:
    """The processes read their certificates from files."""
    asyncio.run(rotated(FolderStore(tmp_path)))


async def writes_until_the_end(when: str, dies_at: int) -> int:
    """The number of writes in a rotation in which the operator dies at one write; 0: at none."""
    store = MemoryStore()
    system = System(store)
    before = await system.grow_old()
    writes = 0

    def written(_: SecretLocation) -> None:
        nonlocal writes
        writes += 1
        if writes == dies_at:
            raise Died

    setattr(store, when, written)
    await system.rotate()
    await system.check(before)
    return writes


@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_at_every_write_of_a_rotation(when: str) -> None:
    """The step is written down or not, some have it and some have not."""
    most = asyncio.run(writes_until_the_end(when, 0))
    assert most >= 9, "three steps, and each replica gets two bundles and a certificate"
    for write in range(1, most + 1):
        assert asyncio.run(writes_until_the_end(when, write)) >= most


def test_crash_of_every_operator_after_its_first_write() -> None:
    """No operator lives for long: each does one thing, and the authority hands over all the same."""

    async def scenario() -> None:
        store = MemoryStore()
        system = System(store)
        before = await system.grow_old()

        def die(_: SecretLocation) -> None:
            raise Died

        store.after = die
        await system.rotate()
        await system.check(before)

    asyncio.run(scenario())
