"""Issued certificates: contents, lifetime, and keys that stay secret."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.certificates.samples import DAY_MS, R1, START_MS, authority, material
from tidemark_operator.certificates.certificate_state import renewed
from tidemark_operator.certificates.issue import is_signed_by, issue, key_matches, new_authority, subject_uri, validity
from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.identities import OPERATOR, PLANNER, Identity, identity_of, replica_identity


@pytest.mark.parametrize(
    ("identity", "purpose", "hosts"),
    [
        (OPERATOR, ExtendedKeyUsageOID.CLIENT_AUTH, []),
        (PLANNER, ExtendedKeyUsageOID.SERVER_AUTH, ["planner.tidemark.internal"]),
        (R1, ExtendedKeyUsageOID.SERVER_AUTH, ["1111.r1.team-a.replica.tidemark.internal"]),
    ],
)
def test_a_certificate_names_its_holder_and_its_usages(
    identity: Identity, purpose: x509.ObjectIdentifier, hosts: list[str]
) -> None:
    """Only the operator's opens connections, and only the others' take them; none signs others."""
    pair = issue(new_authority(START_MS), identity, START_MS)
    found = x509.load_pem_x509_certificate(pair.certificate).extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    assert (
        names.get_values_for_type(x509.UniformResourceIdentifier) == [identity.uri] == [subject_uri(pair.certificate)]
    )
    assert names.get_values_for_type(x509.DNSName) == hosts
    assert list(found.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not found.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_an_authority_signs_holders_and_no_other_authorities() -> None:
    """Nothing but what the operator itself signs is ever trusted."""
    found = x509.load_pem_x509_certificate(new_authority(START_MS).certificate).extensions
    constraints = found.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)


def test_it_is_valid_a_little_before_it_was_made_and_for_thirty_days() -> None:
    """The other side's clock may be behind."""
    found = validity(issue(new_authority(START_MS), R1, START_MS).certificate)
    assert found.holds(START_MS - 59 * 60 * 1000)
    assert found.holds(START_MS + 30 * DAY_MS)
    assert not found.holds(START_MS + 30 * DAY_MS + 1000)
    assert found.is_fresh(START_MS + int(19.9 * DAY_MS))
    assert not found.is_fresh(START_MS + 20 * DAY_MS)


def test_it_is_signed_by_its_authority_and_by_no_other() -> None:
    """Also where both authorities are of one moment."""
    first, second = new_authority(START_MS), new_authority(START_MS)
    pair = issue(first, R1, START_MS)
    assert is_signed_by(pair.certificate, first.certificate)
    assert not is_signed_by(pair.certificate, second.certificate)
    assert key_matches(pair)
    assert not key_matches(type(pair)(pair.certificate, second.key))


def test_a_malformed_certificate_is_refused_without_showing_it() -> None:
    """Whatever was put in its place may be a secret."""
    with pytest.raises(CertificateRefused) as refused:
        validity(b"hunter2")
    assert "hunter2" not in str(refused.value)


def test_no_key_is_ever_printed() -> None:
    """Reprs end up in logs."""
    kept = authority(START_MS)
    leaf = renewed(None, R1, kept, START_MS)
    assert leaf is not None
    for value in (kept, leaf, material(kept.signer, R1, START_MS)):
        assert "PRIVATE" not in repr(value)
        assert "CERTIFICATE" in repr(value)


CASES = {
    "nothing there": lambda leaf, other: None,
    "of somebody else": lambda leaf, other: material(other.signer, replica_identity("a", "b", "c"), START_MS),
    "of another authority": lambda leaf, other: renewed(None, R1, other, START_MS),
    "no certificate": lambda leaf, other: replace(leaf, certificate=b"x"),
    "another's key": lambda leaf, other: replace(leaf, key=other.signer.key),
}


@pytest.mark.parametrize("case", CASES)
def test_an_unsuitable_certificate_is_issued_again(case: str) -> None:
    """Whatever became of it, its holder gets a pair that is good."""
    ours, other = authority(START_MS), authority(START_MS)
    leaf = renewed(None, R1, ours, START_MS)
    better = renewed(CASES[case](leaf, other), R1, ours, START_MS)  # type: ignore[no-untyped-call]
    assert better is not None
    assert is_signed_by(better.certificate, ours.signer.certificate)
    assert renewed(better, R1, ours, START_MS) is None


def test_a_certificate_is_renewed_after_two_thirds_of_its_life_and_not_before() -> None:
    """And at once where the clock is before its beginning."""
    ours = authority(START_MS)
    leaf = renewed(None, R1, ours, START_MS)
    assert renewed(leaf, R1, ours, START_MS + 19 * DAY_MS) is None
    later = renewed(leaf, R1, ours, START_MS + 20 * DAY_MS)
    assert later is not None
    assert leaf is not None
    assert later.certificate != leaf.certificate
    assert renewed(leaf, R1, ours, START_MS - DAY_MS) is not None


def test_other_authorities_alone_change_no_key() -> None:
    """Whoever is to trust one more keeps what it shows."""
    ours = authority(START_MS)
    leaf = renewed(None, R1, ours, START_MS)
    assert leaf is not None
    better = renewed(replace(leaf, authorities=b"older"), R1, ours, START_MS)
    assert better == leaf


def test_openssl_reads_issued_certificates(tmp_path: Path) -> None:
    """Another library than the one that made it."""
    found = material(new_authority(START_MS), R1, START_MS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, content in (("crt", found.certificate), ("key", found.key)):
        (tmp_path / name).write_bytes(content)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    context.load_verify_locations(cadata=found.authorities.decode())
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize("identity", [OPERATOR, PLANNER, R1])
def test_an_identity_is_read_back_from_its_uri(identity: Identity) -> None:
    """And named in words that people know."""
    assert identity_of(identity.uri) == identity
    assert str(R1) == "replica team-a/r1 (1111)"
    assert str(PLANNER) == "the planner"


@pytest.mark.parametrize("uri", ["", "tidemark://", "tidemark://replica//x", "spiffe://operator", "operator"])
def test_a_foreign_identity_is_none(uri: str) -> None:
    """Other systems have URIs in certificates too."""
    assert identity_of(uri) is None
