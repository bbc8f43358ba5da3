"""The files of one holder: its certificate, its key, and the authorities that it trusts. Pure."""

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
    """A certificate with its key, and the bundle (PEM) of trusted authorities."""

    pair: KeyPair
    authorities: bytes

    @property
    def material(self) -> Material:
        return Material(self.pair.certificate, self.pair.key, self.authorities)


def to_files(leaf: HolderFiles) -> Mapping[str, bytes]:
    """The three files by name, as a holder mounts them."""
    return {CERTIFICATE: leaf.pair.certificate, KEY: leaf.pair.key, AUTHORITIES: leaf.authorities}


def from_files(files: Mapping[str, bytes]) -> HolderFiles | None:
    """The files of a holder; None: one is missing."""
    try:
        return HolderFiles(KeyPair(files[CERTIFICATE], files[KEY]), files[AUTHORITIES])
    except KeyError:
        return None


def renewed(
    leaf: HolderFiles | None, identity: Identity, authority: Authority, now_ms: int, hosts: Sequence[str] = ()
) -> HolderFiles | None:
    """The files that should replace `leaf`; None: `leaf` is up to date. The bundle may change without the certificate.

    `hosts`: further DNS names of a new certificate; always the same for a holder.
    """
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
