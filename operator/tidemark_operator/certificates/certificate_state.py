"""What one holder has: its certificate, its key, and whom it trusts. Pure: what is there, and what should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_operator.certificates.authority import Authority
from tidemark_operator.certificates.issue import KeyPair, belongs, holder, is_signed_by, issue, validity
from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.folder import AUTHORITIES, CERTIFICATE, KEY, Material
from tidemark_protocol.tls.identities import Identity


@dataclass(frozen=True)
class Leaf:
    pair: KeyPair
    authorities: bytes

    @property
    def material(self) -> Material:
        return Material(self.pair.certificate, self.pair.key, self.authorities)


def to_bag(leaf: Leaf) -> Mapping[str, bytes]:
    """The three files that a holder mounts."""
    return {CERTIFICATE: leaf.pair.certificate, KEY: leaf.pair.key, AUTHORITIES: leaf.authorities}


def from_bag(bag: Mapping[str, bytes]) -> Leaf | None:
    """None: it is not whole."""
    try:
        return Leaf(KeyPair(bag[CERTIFICATE], bag[KEY]), bag[AUTHORITIES])
    except KeyError:
        return None


def renewed(
    leaf: Leaf | None, identity: Identity, authority: Authority, now_ms: int, hosts: Sequence[str] = ()
) -> Leaf | None:
    """What its holder should have instead; None: what it has is right. Who it trusts may change by itself. `hosts` are
    put into a new one, and are always the same."""
    if leaf is None or not _serves(leaf.pair, identity, authority, now_ms):
        return Leaf(issue(authority.signer, identity, now_ms, hosts), authority.bundle)
    return None if leaf.authorities == authority.bundle else Leaf(leaf.pair, authority.bundle)


def _serves(pair: KeyPair, identity: Identity, authority: Authority, now_ms: int) -> bool:
    try:
        return (
            holder(pair.certificate) == identity.uri
            and validity(pair.certificate).is_fresh(now_ms)
            and is_signed_by(pair.certificate, authority.signer.certificate)
            and belongs(pair)
        )
    except CertificateRefused:
        return False
