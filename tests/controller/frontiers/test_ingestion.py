"""The choice of an ingester: one at a time, another once it is gone or silent, never under an old term."""

from __future__ import annotations

import pytest

from tidemark_operator.controller.ingester_choice import SILENT_MS, Candidates, Ingester, choose_ingester
from tidemark_protocol.ids import WriterTerm


def ingester(replica: str, term: int) -> Ingester:
    return Ingester(replica, WriterTerm(term))


NOW = ingester("r1", 3)
CASES: list[tuple[str, Ingester | None, Candidates, Ingester | None]] = [
    ("first choice: by name", None, Candidates({"r1", "r2"}, {"r2", "r1"}), ingester("r1", 1)),
    ("nobody online", None, Candidates({"r1"}, ()), None),
    ("stays while online", NOW, Candidates({"r1", "r2"}, {"r1", "r2"}), NOW),
    ("stays while it connects again", NOW, Candidates({"r1", "r2"}, {"r2"}, silent_ms=SILENT_MS - 1), NOW),
    ("stays when it is the only one", NOW, Candidates({"r1"}, (), silent_ms=10 * SILENT_MS), NOW),
    ("stays when all have ended", NOW, Candidates({"r1", "r2"}, (), silent_ms=9 * SILENT_MS, has_ended=True), NOW),
    ("moves once it is silent", NOW, Candidates({"r1", "r2"}, {"r2"}, silent_ms=SILENT_MS), ingester("r2", 4)),
    ("moves at once when it ended", NOW, Candidates({"r1", "r2"}, {"r2"}, has_ended=True), ingester("r2", 4)),
    ("stays while online, whatever is observed", NOW, Candidates({"r1"}, {"r1"}, has_ended=True), NOW),
    ("moves at once when it was deleted", NOW, Candidates({"r2"}, {"r2"}), ingester("r2", 4)),
    ("deleted, and nobody else", NOW, Candidates((), ()), None),
]


@pytest.mark.parametrize(("now", "candidates", "expected"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_choice(now: Ingester | None, candidates: Candidates, expected: Ingester | None) -> None:
    """The table of who follows whom."""
    assert choose_ingester(now, candidates, ()) == expected


def test_a_new_term_is_above_all_that_shards_have_seen() -> None:
    """Also above one of which our own record was lost."""
    chosen = choose_ingester(None, Candidates({"r1"}, {"r1"}), [WriterTerm(8), WriterTerm(2)])

    assert chosen == ingester("r1", 9)
