"""What one holder has: its certificate, its key, and whom it trusts. Pure: what is there, and what should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_operator.certificates.authority import Authority
from tidemark_operator.certificates.issue import KeyPair, is_signed_by, issue, key_matches, subject_uri, validity
from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.folder import AUTHORITIES, CERTIFICATE, KEY, Material
from tidemark_protocol.tls.identities import Identity


@dataclass(frozen=True)
class HolderFiles:
    pair: KeyPair
    authorities: bytes

    @property
    def material(self) -> Material:
        return Material(self.pair.certificate, self.pair.key, self.authorities)


def to_files(leaf: HolderFiles) -> Mapping[str, bytes]:
    """The three files that a holder mounts."""
    return {CERTIFICATE: leaf.pair.certificate, KEY: leaf.pair.key, AUTHORITIES: leaf.authorities}


def from_files(bag: Mapping[str, bytes]) -> HolderFiles | None:
    """None: it is not whole."""
    try:
        return HolderFiles(KeyPair(bag[CERTIFICATE], bag[KEY]), bag[AUTHORITIES])
    except KeyError:
        return None


def renewed(
    leaf: HolderFiles | None, identity: Identity, authority: Authority, now_ms: int, hosts: Sequence[str] = ()
) -> HolderFiles | None:
    """What its holder should have instead; None: what it has is right. Who it trusts may change by itself. `hosts` are
    put into a new one, and are always the same."""
    if leaf is None or not _serves(leaf.pair, identity, authority, now_ms):
        return HolderFiles(issue(authority.signer, identity, now_ms, hosts), authority.bundle)
    return None if leaf.authorities == authority.bundle else HolderFiles(leaf.pair, authority.bundle)


def _serves(pair: KeyPair, identity: Identity, authority: Authority, now_ms: int) -> bool:
    try:
        return (
            subject_uri(pair.certificate) == identity.uri
            and validity(pair.certificate).is_fresh(now_ms)
            and is_signed_by(pair.certificate, authority.signer.certificate)
            and key_matches(pair)
        )
    except CertificateRefused:
        return False
