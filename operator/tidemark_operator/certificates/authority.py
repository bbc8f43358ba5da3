"""The authority and its replacement, in steps after which every holder still trusts every certificate in use.

    STEADY        signs with A, every holder trusts A
      │ A has lived two thirds of its life
    INTRODUCING   signs with A, holders receive the bundle of A and B
      │ every holder has the bundle, and had time to read it
    REPLACING     signs with B, holders trust A and B and receive certificates of B; the key of A is discarded
      │ every holder has one, and had time to read it
    STEADY        signs with B, every holder trusts B

Each step is stored before it takes effect, so that another operator continues from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from tidemark_operator.certificates.issue import KeyPair, validity
from tidemark_operator.errors import CertificateRefused

FORMAT = b"1"
Files = Mapping[str, bytes]


class AuthorityStep(Enum):
    """A step of the replacement; the values are stored."""

    STEADY = "steady"
    INTRODUCING = "introducing"
    REPLACING = "replacing"


@dataclass(frozen=True)
class Authority:
    """`since_ms`: when the step was stored (ms since 1970). INTRODUCING has a `successor`, REPLACING the `former`
    certificate (PEM)."""

    step: AuthorityStep
    since_ms: int
    signer: KeyPair
    successor: KeyPair | None = None
    former: bytes | None = None

    @property
    def bundle(self) -> bytes:
        """The certificates (PEM) that every holder trusts in this step."""
        others = [self.successor.certificate if self.successor else None, self.former]
        return b"".join([self.signer.certificate, *(other for other in others if other)])


def steady_authority(now_ms: int, make: Callable[[int], KeyPair]) -> Authority:
    """A new authority, STEADY. `make`: makes its certificate and key."""
    return Authority(AuthorityStep.STEADY, now_ms, make(now_ms))


def advance(authority: Authority, now_ms: int, spread: bool, make: Callable[[int], KeyPair]) -> Authority | None:
    """The next step; None: it is not due.

    `spread`: every holder has this step's files, and had time to read them.

    Raises:
        CertificateRefused: a certificate of the authority cannot be read.
    """
    signer = validity(authority.signer.certificate)
    newest = signer if authority.successor is None else validity(authority.successor.certificate)
    if not newest.holds(now_ms):
        # expired: no holder trusts it any more, so a new authority needs no introduction
        return steady_authority(now_ms, make)
    if authority.successor is not None:
        if spread or not signer.holds(now_ms):
            return Authority(AuthorityStep.REPLACING, now_ms, authority.successor, former=authority.signer.certificate)
    elif authority.step is AuthorityStep.REPLACING:
        if spread:
            return Authority(AuthorityStep.STEADY, now_ms, authority.signer)
    elif not signer.is_fresh(now_ms):
        return Authority(AuthorityStep.INTRODUCING, now_ms, authority.signer, successor=make(now_ms))
    return None


def to_files(authority: Authority) -> Files:
    """Its stored form."""
    files = {
        "format": FORMAT,
        "step": authority.step.value.encode(),
        "since": str(authority.since_ms).encode(),
        "signer.crt": authority.signer.certificate,
        "signer.key": authority.signer.key,
    }
    if authority.successor is not None:
        files |= {"successor.crt": authority.successor.certificate, "successor.key": authority.successor.key}
    if authority.former is not None:
        files["former.crt"] = authority.former
    return files


def from_files(files: Files) -> Authority:
    """The authority of a stored form.

    Raises:
        CertificateRefused: the form is incomplete or of another version. It is not replaced: every holder trusts it.
    """
    if files.get("format") != FORMAT:
        raise CertificateRefused(
            f"the stored authority has format {files.get('format', b'').decode(errors='replace')!r}, this "
            "version reads "
            f"{FORMAT.decode()!r}: use the version of the operator that stored it"
        )
    try:
        step, signer = AuthorityStep(files["step"].decode()), KeyPair(files["signer.crt"], files["signer.key"])
        introducing = step is AuthorityStep.INTRODUCING
        successor = KeyPair(files["successor.crt"], files["successor.key"]) if introducing else None
        former = files["former.crt"] if step is AuthorityStep.REPLACING else None
        return Authority(step, int(files["since"]), signer, successor, former)
    except (KeyError, ValueError):
        raise CertificateRefused(
            "the stored authority is incomplete: restore it from a backup, or delete it for a new one"
        ) from None
