"""The list of tests that are expected not to pass: what differs from it is named."""

from __future__ import annotations

import pytest

from tests.pgwire.psycopg2_suite.suite import REFUSALS, Refusals, SuiteOutcome

LIST = """
# a comment
reason large-objects 0A000 .*lo_
reason notify LISTEN
test_lobject.*  large-objects
test_notify.One.test_a  notify
"""
AS_LISTED = {
    "test_lobject.One.test_a": SuiteOutcome("failed", "Error 0A000 no lo_creat"),
    "test_lobject.One.test_b": SuiteOutcome("failed", "Error 0A000 no\nlo_open"),
    "test_notify.One.test_a": SuiteOutcome("skipped", "no LISTEN"),
    "test_quote.One.test_a": SuiteOutcome("passed"),
}


def test_nothing_differs() -> None:
    assert list(Refusals.read(LIST).differences(AS_LISTED)) == []


@pytest.mark.parametrize(
    ("name", "outcome", "said"),
    [
        ("test_lobject.One.test_b", SuiteOutcome("passed"), "test_lobject.One.test_b passes"),
        ("test_lobject.One.test_b", SuiteOutcome("failed", "57014"), "for another reason than large-objects: 57014"),
        ("test_quote.One.test_a", SuiteOutcome("failed", "wrong"), "test_quote.One.test_a failed: wrong"),
        ("test_quote.One.test_a", SuiteOutcome("died", "139"), "test_quote.One.test_a died: 139"),
        ("test_quote.One.test_a", SuiteOutcome("skipped", "not here"), "test_quote.One.test_a skipped: not here"),
    ],
)
def test_another_outcome_is_named(name: str, outcome: SuiteOutcome, said: str) -> None:
    [difference] = Refusals.read(LIST).differences({**AS_LISTED, name: outcome})
    assert said in difference


def test_a_line_without_tests_is_named() -> None:
    found = {name: outcome for name, outcome in AS_LISTED.items() if "notify" not in name}
    assert list(Refusals.read(LIST).differences(found)) == ["no test is test_notify.One.test_a"]


def test_each_reason_of_the_list_is_used() -> None:
    listed = Refusals.read(REFUSALS.read_text())
    assert set(listed.tests.values()) == set(listed.reasons)
