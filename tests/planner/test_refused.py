"""Refused SQL: each file in refused/ holds cases with their diagnostics."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.planner.catalogue import one_view
from tests.planner.fixture_files import HERE, cases, check
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.messages.planning import Refused

pytestmark = pytest.mark.spark


def outcome(catalyst: Catalyst, sql: str) -> str:
    refused = plan(catalyst, one_view(sql))
    assert isinstance(refused, Refused), f"was planned: {sql}"
    lines = []
    for d in refused.diagnostics:
        missing = f" missing={'.'.join(d.relation)}" if d.relation else ""
        lines.append(f"{d.code} {d.line}:{d.column} [{d.word}]{missing} {d.message}")
    return "\n".join(lines)


@pytest.mark.parametrize("file", sorted((HERE / "refused").glob("*.txt")), ids=lambda file: file.stem)
def test_sql_is_refused_by_name_and_position(catalyst: Catalyst, file: Path) -> None:
    """The code, the position, the offending word and the message."""
    check(file, [(case, outcome(catalyst, case.sql)) for case in cases(file)])


def test_refused_sql_is_not_logged(catalyst: Catalyst, caplog: pytest.LogCaptureFixture) -> None:
    """A statement may hold data of its user, and anybody may send as many refused ones as they like."""
    with caplog.at_level(logging.WARNING):
        outcome(catalyst, "SELECT nothing FROM s.t WHERE s = 'a secret'")
    assert "secret" not in caplog.text
