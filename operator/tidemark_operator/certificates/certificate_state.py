"""The files of one holder: its certificate, its key, and the authorities that it trusts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark_operator.certificates.authority import Authority
from tidemark_operator.certificates.issue import KeyPair, is_signed_by, issue, key_matches, subject_uri, validity
from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.folder import AUTHORITIES, CERTIFICATE, KEY, Material
from tidemark_protocol.tls.identities import Identity


def to_files(leaf: Material) -> Mapping[str, bytes]:
    """The three files by name, as a holder mounts them."""
    return {CERTIFICATE: leaf.certificate, KEY: leaf.key, AUTHORITIES: leaf.authorities}


def from_files(files: Mapping[str, bytes]) -> Material | None:
    """The files of a holder; None: one is missing."""
    try:
        return Material(files[CERTIFICATE], files[KEY], files[AUTHORITIES])
    except KeyError:
        return None


def renewed(
    leaf: Material | None, identity: Identity, authority: Authority, now_ms: int, hosts: Sequence[str] = ()
) -> Material | None:
    """The files that should replace `leaf`; None: `leaf` is up to date. The bundle may change without the certificate.

    `hosts`: further DNS names of a new certificate; always the same for a holder.
    """
    if leaf is None or not _serves(KeyPair(leaf.certificate, leaf.key), identity, authority, now_ms):
        pair = issue(authority.signer, identity, now_ms, hosts)
        return Material(pair.certificate, pair.key, authority.bundle)
    return None if leaf.authorities == authority.bundle else replace(leaf, authorities=authority.bundle)


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
