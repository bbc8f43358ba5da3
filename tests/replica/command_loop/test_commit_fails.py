"""A failed commit is the failure of one dataflow's step: the command loop goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.replica.tables import Table
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tidemark_protocol.frontier import Frontier
from tidemark_replica import retry
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.store import ArrangementStore


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(5, "Input/output error"), "OSError: Input/output error"),
        (MemoryError("no memory is left"), "MemoryError: unexpected error in tidemark_replica/"),
        (pa.ArrowInvalid("Could not convert 'alice'"), "ArrowInvalid: unexpected error in tidemark_replica/"),
    ],
)
def test_crash_a_commit_that_fails_is_told_and_tried_again(
    two: TwoDataflows,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    expected: str,
) -> None:
    """Without the values that an error may quote: those are in the log. The other dataflow goes on; the state is that
    before the step, and then that after it."""
    two.reach(10, LOSER, OTHER)
    index = two.renderer.find(LOSER)
    assert index is not None
    before = index.manifest
    commit_all = ArrangementStore.commit_all

    def fails(store: ArrangementStore, moves: Sequence[tuple[Manifest, Manifest]]) -> None:
        if any(old.arrangement == index.arrangement for old, _ in moves):
            raise error
        commit_all(store, moves)

    monkeypatch.setattr(retry, "MAX_SECONDS", retry.FIRST_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(ArrangementStore, "commit_all", fails)
        table.append(20, ((1, "a"), 12, 1), ((2, "b"), 15, 1))
        two.reach(20, OTHER)
        two.wait_for_failure()
        message = two.failed(LOSER)[0].message
        assert message.startswith(expected)
        assert "alice" not in message
        assert str(error) in caplog.text
        assert index.manifest == before
        assert two.installed[LOSER].processed == Frontier.at(10)
    two.reach(20, LOSER)
    assert two.rows(LOSER, 19) == two.rows(OTHER, 19) == dict(table.at(19))
    assert two.failed(OTHER) == []
