"""A backup is put in the place of a view's table while its replica writes it: told, and corrected by a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.replica.test_crash_sink import View, contents, history, persisted
from tests.replica.worker_loop import Loop
from tidemark_persist import open_shard
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Status


def test_a_table_that_went_back_is_told_and_corrected_by_a_restart(tmp_path: Path) -> None:
    """Before, the sink appended nothing more without a word."""
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

    view.step(40)
    view.loop.run_until(lambda: any(isinstance(s, Status) for s in view.loop.said), view.sink.advance)
    (status,) = [s for s in view.loop.said if isinstance(s, Status)]
    assert (status.kind, status.fields["retrying"]) == ("sink_failed", "false")
    assert "a backup" in status.fields["message"]
    view.sink.drop()

    restarted = View(tmp_path / "r2", table, updates, 22, Loop())
    restarted.sink.allow_writes(WriterTerm(2))
    restarted.step(40)
    restarted.write_until(40)
    state = open_shard(str(table)).state()
    assert (state.since, state.upper) == (22, 40)
    assert [persisted(table, at) for at in range(22, 40)] == [contents(updates, at) for at in range(22, 40)]
