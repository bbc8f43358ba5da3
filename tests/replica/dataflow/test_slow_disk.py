"""A disk that hangs when it is to remove a folder: steps and drops of all dataflows go on, on however few threads."""

from __future__ import annotations

import pytest

from tests.replica.tables import Table
from tests.replica.two_dataflows import LOSER, OTHER, TwoDataflows
from tests.stuck_folders import StuckFolders
from tests.waiting import until


def test_steps_and_drops_do_not_wait_for_folders_to_go(
    two: TwoDataflows, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More steps than the pools have threads, and a drop; what they leave goes once the disk works."""
    stuck = StuckFolders(monkeypatch)
    two.reach(10, LOSER, OTHER)
    for upper in (20, 30):
        table.append(upper, ((upper, "a"), upper - 1, 1))
        two.reach(upper, LOSER, OTHER)
    two.drop(LOSER)
    table.append(40, ((40, "b"), 39, 1))
    two.reach(40, OTHER)
    assert two.rows(OTHER, 39) == dict(table.at(39))
    until(lambda: stuck.asked)
    assert stuck.removed == 0
    assert len(two.step_folders()) == 7
    stuck.works.set()
    until(lambda: not two.step_folders())
