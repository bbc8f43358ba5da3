"""A process dies at each step of the tick in which the tables are copied, and of those after it, while upstream goes
on: the contents are those of between two transactions, later and later, and at the end each row is there once.

Nothing is truncated: a copy that meets a TRUNCATE begins again, and steps would be counted twice.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from tests.postgres.databases import KEYED_SCHEMA as KEYED
from tests.postgres.databases import SCHEMA as FULL
from tests.postgres.databases import Database, History, KeyedHistory, check, create_database, drop_slots, spec_of
from tests.postgres.test_crash_processes import finish
from tests.storage.dying_steps import dies

pytestmark = [pytest.mark.postgres, pytest.mark.broad]

PARTS = 6
"""Each takes every sixth step."""


@pytest.mark.parametrize(
    ("first", "every"),
    [pytest.param(11, 1000), *(pytest.param(n, PARTS, marks=pytest.mark.slow) for n in range(PARTS))],
)
def test_crash_at_each_step_of_the_copying_tick(database: Database, tmp_path: Path, first: int, every: int) -> None:
    server, name, kind = database.server, f"copied{first}x{every}", KeyedHistory if first % 2 else History
    create_database(server, name, KEYED if first % 2 else FULL)
    history, died = kind(server, name, first, truncates=False), 0
    for _ in range(30):
        history.step()
    history.close()
    spec = spec_of(server, name)
    for step in count(first, every):
        root = tmp_path / f"{step}"
        root.mkdir()
        history.reconnect()
        with history.going_on(0.02):
            died_here = dies("postgres", root, spec, step)
        finish(root, spec)
        check(root, history.states)
        drop_slots(server)
        if not died_here or every == 1000:
            break
        died += 1
    assert died_here if every == 1000 else died >= 30 // PARTS
