"""The changes that a publication reads: the last times of a file with a long history are few, whatever its size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_sink.views import View
from tidemark_replica.sinks.destinations import shard_contents
from tidemark_replica.sinks.destinations.shard_contents import TooManyChanges, net_changes


def history(folder: Path, last: int) -> View:
    """1,000 rows at 100 times, and `last` rows at a time after them, in one file."""
    view = View(folder)
    rows = [((n, "a", f"name {n}", 1.0), n % 100, 1) for n in range(1_000)]
    view.append([*rows, *(((n, "b", "", 1.0), 100, 1) for n in range(last))], times=101)
    return view


def test_the_last_times_of_a_large_file_are_few_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = history(tmp_path, 3)
    (part,) = view.shard.listen(100, 101)
    monkeypatch.setattr(shard_contents, "CHANGES_BYTES", part.size // 2)
    assert net_changes(view.shard, [part], "table kept").num_rows == 3
    with pytest.raises(TooManyChanges):
        net_changes(view.shard, view.shard.listen(0, 101), "table kept")


def test_changes_that_are_more_than_they_seemed_are_too_many(tmp_path: Path) -> None:
    """The number of rows at a time is not known before they are read."""
    view = history(tmp_path, 900)
    parts = view.shard.listen(100, 101)
    assert parts[0].rows_about < 500
    with pytest.raises(TooManyChanges):
        net_changes(view.shard, parts, "table kept", rows_max=500)
    assert net_changes(view.shard, parts, "table kept").num_rows == 900
