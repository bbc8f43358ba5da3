"""A backup is put in the place of a view's table while its replica writes it: told, and corrected by the next sink."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.replica.sinks.test_crash_sink import View, contents, history, persisted
from tests.replica.worker_loop import Loop
from tidemark_persist import ForeignCommit, open_shard
from tidemark_protocol.ids import WriterTerm


def is_told(view: View) -> bool:
    try:
        view.sink.check_table()
    except ForeignCommit as foreign:
        return "a backup" in str(foreign)
    return False


@pytest.mark.parametrize("handle_is_new", [False, True])
def test_a_table_that_went_back_is_told_and_corrected_by_the_next_sink(tmp_path: Path, handle_is_new: bool) -> None:
    """Also where the sink has looked at the table by the handle alone that is opened after the replacement."""
    updates, table = history(0, 40), tmp_path / "shard"
    view = View(tmp_path / "r1", table, updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.step(20)
    view.write_until(20)
    shutil.copytree(table, tmp_path / "backup")
    for upper in (25, 30):
        view.step(upper)
        view.write_until(upper)
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "backup", table)

    if handle_is_new:
        view.loop.handles.forget(str(table))
        view.sink._epoch = None
    view.step(40)
    view.loop.run_until(lambda: is_told(view), view.sink.advance)
    view.sink.stop()

    restarted = View(tmp_path / "r2", table, updates, 22, Loop())
    restarted.sink.allow_writes(WriterTerm(2))
    restarted.step(40)
    restarted.write_until(40)
    state = open_shard(str(table)).state()
    assert (state.since, state.upper) == (22, 40)
    assert [persisted(table, at) for at in range(22, 40)] == [contents(updates, at) for at in range(22, 40)]
