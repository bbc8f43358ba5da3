"""The authority's life, step by step: when it goes on, and when it waits."""

from __future__ import annotations

import pytest

from tests.certificates.samples import DAY_MS, START_MS, authority
from tidemark_operator.certificates.authority import Authority, AuthorityStep, advance, from_files, to_files
from tidemark_operator.certificates.issue import new_authority
from tidemark_operator.errors import CertificateRefused

DUE_MS = START_MS + 244 * DAY_MS


def after(authority: Authority, now_ms: int, spread: bool) -> Authority:
    found = advance(authority, now_ms, spread, new_authority)
    assert found is not None
    return found


def test_it_hands_over_in_three_steps() -> None:
    """The test checks who trusts whom, and who signs, in each step."""
    first = authority(START_MS)
    introducing = after(first, DUE_MS, spread=True)
    assert introducing.step is AuthorityStep.INTRODUCING
    assert introducing.successor is not None
    assert introducing.signer == first.signer
    assert introducing.bundle == first.signer.certificate + introducing.successor.certificate

    replacing = after(introducing, DUE_MS, spread=True)
    assert (replacing.step, replacing.signer) == (AuthorityStep.REPLACING, introducing.successor)
    assert replacing.bundle == introducing.successor.certificate + first.signer.certificate
    assert first.signer.key not in to_files(replacing).values()

    steady = after(replacing, DUE_MS, spread=True)
    assert (steady.step, steady.signer, steady.bundle) == (
        AuthorityStep.STEADY,
        introducing.successor,
        introducing.successor.certificate,
    )


def test_it_does_nothing_before_two_thirds_of_its_life() -> None:
    """Whether or not all know it."""
    for spread in (False, True):
        assert advance(authority(START_MS), START_MS + 243 * DAY_MS, spread, new_authority) is None


def test_a_rotation_waits_until_all_holders_have_taken_its_step() -> None:
    """In both steps that somebody could be left behind in."""
    introducing = after(authority(START_MS), DUE_MS, spread=False)
    assert advance(introducing, DUE_MS + 30 * DAY_MS, False, new_authority) is None
    replacing = after(introducing, DUE_MS, spread=True)
    assert advance(replacing, DUE_MS + 300 * DAY_MS, False, new_authority) is None


def test_one_that_expires_while_its_successor_is_introduced_waits_for_no_other() -> None:
    """It is trusted by none any more, and its successor by some."""
    introducing = after(authority(START_MS), DUE_MS, spread=False)
    assert after(introducing, START_MS + 366 * DAY_MS, spread=False).step is AuthorityStep.REPLACING


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_untrusted_certificate_is_replaced_at_once(steps: int) -> None:
    """An operator that comes back after years."""
    found = authority(START_MS)
    for _ in range(steps):
        found = after(found, DUE_MS, spread=True)
    late = DUE_MS + 366 * DAY_MS
    anew = after(found, late, spread=False)
    assert (anew.step, anew.successor, anew.former) == (AuthorityStep.STEADY, None, None)
    assert anew.signer != found.signer
    assert advance(anew, late, True, new_authority) is None


def test_every_step_is_read_back_as_it_was_written() -> None:
    """By the operator that goes on."""
    steady = authority(START_MS)
    introducing = after(steady, DUE_MS, spread=True)
    replacing = after(introducing, DUE_MS, spread=True)
    for written in (steady, introducing, replacing, after(replacing, DUE_MS, spread=True)):
        assert from_files(to_files(written)) == written


@pytest.mark.parametrize("wrong", ["format", "step", "since", "signer.crt", "signer.key"])
def test_an_incomplete_stored_authority_is_refused(wrong: str) -> None:
    """It is no reason to make another, which nobody would trust."""
    bag = dict(to_files(authority(START_MS)))
    del bag[wrong]
    with pytest.raises(CertificateRefused):
        from_files(bag)
