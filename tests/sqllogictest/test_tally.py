"""The end of a run: counts, messages, and truncation."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.sqllogictest.records import Place
from tests.sqllogictest.runner import Outcome
from tests.sqllogictest.tally import Tally
from tests.sqllogictest.time_limit import StatementTimedOut, bounded
from tests.waiting import BOUND


def test_the_last_line_counts_all_records_and_lists_failed_ones() -> None:
    """With reasons for what is not supported beside it."""
    total, place = Tally(), Place(Path("a.slt"), 7)
    for kind, reason in (("passed", ""), ("failed", "a wrong answer"), ("unsupported", "MAP"), ("unsupported", "MAP")):
        total.add(Outcome(place, "peek", kind, reason, sql="SELECT 1"))
    summary = total.summary()

    assert {k: summary[k] for k in ("passed", "failed", "unsupported")} == {"passed": 1, "failed": 1, "unsupported": 2}
    assert [(f["line"], f["reason"]) for f in summary["failures"]] == [(7, "a wrong answer")]
    assert total.explained()[-1] == "2 times unsupported: MAP"


def test_an_endless_dataflow_is_cancelled_and_named() -> None:
    """And what fails of itself keeps its own name."""
    ended = threading.Event()

    def goes_on() -> None:
        assert ended.wait(BOUND)
        raise RuntimeError("cancelled")

    def fails() -> None:
        raise ValueError("own")

    with pytest.raises(StatementTimedOut, match=r"0\.01 s"), bounded(0.01, ended.set):
        goes_on()
    with pytest.raises(ValueError, match="own"), bounded(BOUND, ended.set):
        fails()
