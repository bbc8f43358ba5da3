"""The authority and its successor: at no moment does anybody meet a certificate that it does not trust yet.

    STEADY        signs with A, all trust A
      │ A has lived two thirds of its life
    INTRODUCING   signs with A, all come to trust A and B
      │ all do, and have had time to read it
    REPLACING     signs with B, all trust A and B, all get certificates of B; the key of A is forgotten
      │ all have one, and have had time to read it
    STEADY        signs with B, all trust B

Each step is written down before anything is done about it, so whoever comes next goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from tidemark_operator.certificates.issue import KeyPair, validity
from tidemark_operator.errors import CertificateRefused

FORMAT = b"1"
Files = Mapping[str, bytes]


class Step(Enum):
    STEADY = "steady"
    INTRODUCING = "introducing"
    REPLACING = "replacing"


@dataclass(frozen=True)
class Authority:
    """`since_ms`: when the step was written down. INTRODUCING has a `successor`, REPLACING the `former` certificate."""

    step: Step
    since_ms: int
    signer: KeyPair
    successor: KeyPair | None = None
    former: bytes | None = None

    @property
    def bundle(self) -> bytes:
        """Whom everybody trusts in this step."""
        others = [self.successor.certificate if self.successor else None, self.former]
        return b"".join([self.signer.certificate, *(other for other in others if other)])


def first(now_ms: int, make: Callable[[int], KeyPair]) -> Authority:
    return Authority(Step.STEADY, now_ms, make(now_ms))


def advance(authority: Authority, now_ms: int, spread: bool, make: Callable[[int], KeyPair]) -> Authority | None:
    """The next step; None: not yet. `spread`: everybody has what this step says, and has had time to read it."""
    signer = validity(authority.signer.certificate)
    newest = signer if authority.successor is None else validity(authority.successor.certificate)
    if not newest.holds(now_ms):
        # nobody trusts it any more, so there is nothing to hand over
        return first(now_ms, make)
    if authority.successor is not None:
        if spread or not signer.holds(now_ms):
            return Authority(Step.REPLACING, now_ms, authority.successor, former=authority.signer.certificate)
    elif authority.step is Step.REPLACING:
        if spread:
            return Authority(Step.STEADY, now_ms, authority.signer)
    elif not signer.is_fresh(now_ms):
        return Authority(Step.INTRODUCING, now_ms, authority.signer, successor=make(now_ms))
    return None


def to_files(authority: Authority) -> Files:
    """As it is kept."""
    bag = {
        "format": FORMAT,
        "step": authority.step.value.encode(),
        "since": str(authority.since_ms).encode(),
        "signer.crt": authority.signer.certificate,
        "signer.key": authority.signer.key,
    }
    if authority.successor is not None:
        bag |= {"successor.crt": authority.successor.certificate, "successor.key": authority.successor.key}
    if authority.former is not None:
        bag["former.crt"] = authority.former
    return bag


def from_files(bag: Files) -> Authority:
    """Raises CertificateRefused: what is kept is not replaced by a guess, as all trust the one that was."""
    if bag.get("format") != FORMAT:
        raise CertificateRefused("the authority that is kept has another format than this version reads")
    try:
        step, signer = Step(bag["step"].decode()), KeyPair(bag["signer.crt"], bag["signer.key"])
        introducing = step is Step.INTRODUCING
        successor = KeyPair(bag["successor.crt"], bag["successor.key"]) if introducing else None
        former = bag["former.crt"] if step is Step.REPLACING else None
        return Authority(step, int(bag["since"]), signer, successor, former)
    except (KeyError, ValueError):
        raise CertificateRefused("the authority that is kept is not whole") from None
