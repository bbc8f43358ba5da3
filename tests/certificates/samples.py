"""A clock that is put forward, a store that can fail, and certificates of every kind that a peer may show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemark_operator.certificates.authority import Authority, steady_authority
from tidemark_operator.certificates.issue import KeyPair, issue, new_authority
from tidemark_operator.certificates.store import Files, SecretLocation, StoredFiles, WriteConflict
from tidemark_protocol.tls.folder import AUTHORITIES, CERTIFICATE, KEY, CertificateFolder, Material
from tidemark_protocol.tls.identities import Identity, replica_identity

DAY_MS = 24 * 60 * 60 * 1000
START_MS = 1_800_000_000_000
R1 = replica_identity("team-a", "r1", "1111")
R2 = replica_identity("team-a", "r2", "2222")
R1_PLACE = SecretLocation("tidemark-replica-r1-tls", "team-a")
R2_PLACE = SecretLocation("tidemark-replica-r2-tls", "team-a")


class Clock:
    """Stands still until it is put forward."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, days: float) -> None:
        self.now_ms += int(days * DAY_MS)


class Died(BaseException):
    """The process ended here: nothing handles it."""


class MemoryStore:
    """A store in memory, with the promises of the real one. `before` and `after` are called with what is being written,
    and may raise."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], StoredFiles] = {}
        self.writes = 0
        self.before: Callable[[SecretLocation], None] = lambda _: None
        self.after: Callable[[SecretLocation], None] = lambda _: None

    async def load(self, place: SecretLocation) -> StoredFiles | None:
        return self.kept.get(place.key)

    async def write(self, place: SecretLocation, bag: Files, kept: StoredFiles | None) -> None:
        self.before(place)
        there = self.kept.get(place.key)
        if (there.version if there else None) != (kept.version if kept else None):
            raise WriteConflict(f"{place.name} was written by somebody else")
        self.writes += 1
        self.kept[place.key] = StoredFiles(dict(bag), str(self.writes))
        self.after(place)


def authority(now_ms: int) -> Authority:
    return steady_authority(now_ms, new_authority)


def material(signer: KeyPair, identity: Identity, now_ms: int, trusts: bytes | None = None) -> Material:
    """The files of a holder, who trusts the signer, or others."""
    pair = issue(signer, identity, now_ms)
    return Material(pair.certificate, pair.key, signer.certificate if trusts is None else trusts)


def written(folder: Path, found: Material) -> CertificateFolder:
    """The folder that has it as files, each written anew."""
    folder.mkdir(exist_ok=True)
    for name, content in ((CERTIFICATE, found.certificate), (KEY, found.key), (AUTHORITIES, found.authorities)):
        (folder / name).write_bytes(content)
    return CertificateFolder(folder)
