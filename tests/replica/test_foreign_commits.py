"""Another program changes the table of a view while its replica runs: the rows come back, and a status says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.replica.test_crash_sink import VIEW, View, assert_exact, contents, history, persisted
from tests.replica.worker_loop import Loop
from tidemark_persist import open_shard
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Status


@pytest.mark.parametrize("seed", range(2))
def test_a_view_has_its_rows_again_after_another_program_deleted_some(tmp_path: Path, seed: int) -> None:
    updates, table = history(seed, 30), tmp_path / "shard"
    view = View(tmp_path / "r1", table, updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.step(20)
    view.write_until(20)
    DeltaTable(str(table)).delete("__diff = 1")
    version = DeltaTable(str(table)).version()

    view.step(30)
    view.write_until(30)

    assert_exact(table, updates, 30)
    (status,) = [s for s in view.loop.said if isinstance(s, Status)]
    message = f"another program changed table {table} (versions {version}); its changes were taken back"
    assert status == Status(VIEW, "table_restored", {"message": message})
    view.sink.report_again()
    assert view.loop.said[-1] == status


def test_a_view_whose_files_are_gone_says_so_and_goes_on_when_they_are_back(tmp_path: Path) -> None:
    updates, table = history(0, 30), tmp_path / "shard"
    view = View(tmp_path / "r1", table, updates, 4, Loop())
    view.sink.allow_writes(WriterTerm(1))
    view.step(20)
    view.write_until(20)
    files = {file: file.read_bytes() for file in table.glob("*.parquet")}
    DeltaTable(str(table)).delete()
    for file in files:
        file.unlink()

    view.step(30)
    view.loop.run_until(lambda: any(isinstance(s, Status) for s in view.loop.said), view.sink.advance)
    status = next(s for s in view.loop.said if isinstance(s, Status))
    assert (status.kind, status.fields["retrying"]) == ("sink_failed", "true")
    assert "do not exist any more" in status.fields["message"]
    assert open_shard(str(table)).state().upper == 20

    for file, data in files.items():
        file.write_bytes(data)
    view.write_until(30)
    assert_exact(table, updates, 30)


def test_a_table_that_was_replaced_by_a_backup_is_told_and_corrected_by_a_restart(tmp_path: Path) -> None:
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
